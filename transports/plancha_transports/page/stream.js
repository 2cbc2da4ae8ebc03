import { Failure, fromMessage } from "./failure.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;

/**
 * @typedef {object} Listener of one request
 * @property {(text: string, tokens: number) => void} onTokens
 * @property {(ended: {kind: "done" | "cancelled", reason?: string, usage: any}) => void} onEnd
 * @property {(failure: Failure) => void} onFailure
 */

/** The WebSocket: opened when it is needed, and again when it is lost. */
export class Stream {
  #server;
  #onState;
  #socket = null;
  #listeners = new Map();
  #unsent = [];
  #number = 0;
  #waitMs = FIRST_WAIT_MS;
  #timer = 0;
  #wanted = false;

  /**
   * @param {import("./server.js").Server} server
   * @param {(state: "open" | "connecting" | "lost") => void} onState
   */
  constructor(server, onState) {
    this.#server = server;
    this.#onState = onState;
    document.addEventListener("visibilitychange", () => this.#comeBack());
    window.addEventListener("online", () => this.#comeBack());
  }

  /** Open, or with another key again. */
  open() {
    this.#wanted = true;
    this.#drop(new Failure("The connection was opened anew.", { code: "connection_lost" }));
    this.#waitMs = FIRST_WAIT_MS;
    this.#connect();
  }

  close() {
    this.#wanted = false;
    this.#drop(new Failure("The connection was closed.", { code: "connection_lost" }));
  }

  /**
   * @param {object} body fields of a "generate" message
   * @param {Listener} listener is told exactly one end
   * @returns {() => void} cancels it
   */
  generate(body, listener) {
    const id = String(++this.#number);
    this.#listeners.set(id, listener);
    this.#send({ type: "generate", id, ...body });
    return () => this.#cancel(id);
  }

  #cancel(id) {
    const waiting = this.#unsent.findIndex((message) => message.id === id);
    if (waiting < 0) {
      this.#send({ type: "cancel", id });
      return;
    }
    this.#unsent.splice(waiting, 1);
    this.#end(id)?.onEnd({ kind: "cancelled", usage: { output_tokens: 0 } });
  }

  #send(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
    else if (message.type === "generate") {
      this.#unsent.push(message);
      this.#comeBack();
    }
  }

  #connect() {
    clearTimeout(this.#timer);
    this.#onState("connecting");
    const socket = (this.#socket = this.#server.connect());
    socket.onopen = () => {
      this.#waitMs = FIRST_WAIT_MS;
      this.#onState("open");
      for (const message of this.#unsent.splice(0)) this.#send(message);
    };
    socket.onmessage = (event) => this.#hear(JSON.parse(event.data));
    socket.onclose = () => this.#lost();
  }

  #lost() {
    const lost = new Failure("The connection was lost.", { code: "connection_lost" });
    this.#drop(lost);
    this.#onState("lost");
    if (!document.hidden) this.#timer = setTimeout(() => this.#connect(), this.#waitMs);
    this.#waitMs = Math.min(2 * this.#waitMs, LONGEST_WAIT_MS);
  }

  /** Somebody looks, or the network is back: do not wait any longer. */
  #comeBack() {
    if (this.#wanted && this.#socket === null && !document.hidden) this.#connect();
  }

  #drop(failure) {
    const socket = this.#socket;
    this.#socket = null;
    this.#unsent = [];
    clearTimeout(this.#timer);
    if (socket !== null) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close();
    }
    for (const id of [...this.#listeners.keys()]) this.#end(id)?.onFailure(failure);
  }

  #hear(message) {
    const listener = this.#listeners.get(message.id);
    switch (message.type) {
      case "token":
        listener?.onTokens(message.text, 1);
        break;
      case "tokens":
        listener?.onTokens(message.text, message.tokens.length);
        break;
      case "done":
        if (message.text) listener?.onTokens(message.text, 0);
        this.#end(message.id);
        listener?.onEnd({ kind: "done", reason: message.finish_reason, usage: message.usage });
        break;
      case "cancelled":
        this.#end(message.id);
        listener?.onEnd({ kind: "cancelled", usage: message.usage });
        break;
      case "error":
        this.#end(message.id);
        listener?.onFailure(fromMessage(message.error));
        break;
    }
  }

  #end(id) {
    const listener = this.#listeners.get(id);
    this.#listeners.delete(id);
    return listener;
  }
}
