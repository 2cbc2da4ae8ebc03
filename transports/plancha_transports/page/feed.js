const INTERVAL_MS = 500;
const LONGEST_MS = 4000;

/** Asks `/v1/live` twice a second, while somebody can see it. */
export class Feed {
  #server;
  #isSeen;
  #onSnapshot;
  #onFailure;
  #timer = 0;
  #asking = false;
  #waitMs = INTERVAL_MS;

  /**
   * @param {import("./server.js").Server} server
   * @param {{isSeen: () => boolean, onSnapshot: (snapshot: any) => void,
   *   onFailure: (failure: import("./failure.js").Failure) => void}} told
   */
  constructor(server, { isSeen, onSnapshot, onFailure }) {
    this.#server = server;
    this.#isSeen = isSeen;
    this.#onSnapshot = onSnapshot;
    this.#onFailure = onFailure;
    document.addEventListener("visibilitychange", () => this.look());
  }

  /** Something may have changed about whether it is seen, or about who asks. */
  look() {
    clearTimeout(this.#timer);
    if (!this.#asking && this.#isSeen() && !document.hidden) this.#ask();
  }

  async #ask() {
    this.#asking = true;
    const { key } = this.#server;
    try {
      const snapshot = await this.#server.get("v1/live");
      if (key === this.#server.key) this.#onSnapshot(snapshot); // or it is for somebody else
      this.#waitMs = INTERVAL_MS;
    } catch (failure) {
      this.#onFailure(failure);
      this.#waitMs = Math.min(2 * this.#waitMs, LONGEST_MS);
    }
    this.#asking = false;
    this.#timer = setTimeout(() => this.look(), this.#waitMs);
  }
}
