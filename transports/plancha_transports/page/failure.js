/** What went wrong, and what its reader can do about it. */

export class Failure extends Error {
  /**
   * @param {string} message
   * @param {{code?: string | null, status?: number, retryAfterS?: number | null}} [more]
   */
  constructor(message, { code = null, status = 0, retryAfterS = null } = {}) {
    super(message);
    this.code = code;
    this.status = status;
    this.retryAfterS = retryAfterS;
  }

  get needsKey() {
    return this.code === "invalid_api_key" || this.status === 401;
  }

  /** One sentence more than the server's own, where there is something to be done. */
  get advice() {
    if (this.needsKey) return "Enter a key with the button at the top.";
    return ADVICE[this.code] ?? (this.retryAfterS ? "The server is busy; nothing is lost." : "");
  }
}

const ADVICE = {
  context_length_exceeded: "Shorten the prompt, lower Max tokens or begin a new conversation.",
  kv_pool_exceeded: "Shorten the prompt, lower Max tokens or begin a new conversation.",
  model_not_found: "Choose another model.",
  unreachable: "It is tried again by itself.",
  connection_lost: "What had come is kept.",
  worker_lost: "What had come is kept.",
};

/** Of a WebSocket's `error` object. */
export function fromMessage(error) {
  return new Failure(error.message, { code: error.code, retryAfterS: error.retry_after_s });
}

/** @param {Response} response one that is not ok */
export async function fromResponse(response) {
  const said = await response.json().catch(() => null);
  const error = said?.error ?? {};
  const retryAfterS = Number(response.headers.get("Retry-After")) || null;
  const message = error.message ?? `The server answered ${response.status}.`;
  return new Failure(message, { code: error.code, status: response.status, retryAfterS });
}
