import { Failure, fromResponse } from "./failure.js";

const BASE = new URL("..", import.meta.url);
const STORED = "plancha.key";
const PATIENCE_MS = 8000;

/** The server that this page came from, called with the key if there is one. */
export class Server {
  get key() {
    return sessionStorage.getItem(STORED);
  }

  /** @param {string | null} key null: forget it */
  set key(key) {
    if (key === null) sessionStorage.removeItem(STORED);
    else sessionStorage.setItem(STORED, key);
  }

  /** The JSON at `path`. Throws a `Failure`. */
  async get(path) {
    const headers = this.key ? { Authorization: `Bearer ${bytesOf(this.key)}` } : {};
    const response = await asked(path, headers);
    if (!response.ok) throw await fromResponse(response);
    return response.json().catch(() => {
      throw new Failure("The server's answer broke off.", { code: "unreachable" });
    });
  }

  /** How far the server's start is. Throws a `Failure` when it cannot be reached. */
  async startup() {
    return (await asked("health/startup", {})).json();
  }

  /** A socket that is being opened. The key goes as a subprotocol, never in the address. */
  connect() {
    const url = new URL("v1/stream", BASE);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    return new WebSocket(url, this.key ? ["plancha", `key.${base64url(this.key)}`] : ["plancha"]);
  }
}

/** The response, of whatever status; who is silent for too long cannot be reached. */
async function asked(path, headers) {
  const signal = AbortSignal.timeout(PATIENCE_MS);
  return fetch(new URL(path, BASE), { headers, signal, cache: "no-store" }).catch(() => {
    throw new Failure("The server cannot be reached.", { code: "unreachable" });
  });
}

/** As UTF-8, a character a byte: what headers are made of. */
function bytesOf(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

function base64url(text) {
  return btoa(bytesOf(text)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
