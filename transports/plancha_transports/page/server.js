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
    const signal = AbortSignal.timeout(PATIENCE_MS);
    let response;
    try {
      response = await fetch(new URL(path, BASE), { headers, signal, cache: "no-store" });
    } catch {
      throw new Failure("The server cannot be reached.", { code: "unreachable" });
    }
    if (!response.ok) throw await fromResponse(response);
    return response.json();
  }

  /** How far the server's start is. Throws a `Failure` when it cannot be reached. */
  async startup() {
    const response = await fetch(new URL("health/startup", BASE), { cache: "no-store" }).catch(() => {
      throw new Failure("The server cannot be reached.", { code: "unreachable" });
    });
    return response.json();
  }

  /** A socket that is being opened. The key goes as a subprotocol, never in the address. */
  connect() {
    const url = new URL("v1/stream", BASE);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    return new WebSocket(url, this.key ? ["plancha", `key.${base64url(this.key)}`] : ["plancha"]);
  }
}

/** As UTF-8, a character a byte: what headers are made of. */
function bytesOf(text) {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

function base64url(text) {
  return btoa(bytesOf(text)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
