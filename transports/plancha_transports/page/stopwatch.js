/** Times one answer, by what arrives here. */
export class Stopwatch {
  #beganMs = performance.now();
  #firstMs = 0;
  #lastMs = 0;
  tokens = 0;

  /** @param {number} tokens that have just arrived */
  count(tokens) {
    if (tokens === 0) return;
    this.#lastMs = performance.now();
    if (this.tokens === 0) this.#firstMs = this.#lastMs;
    this.tokens += tokens;
  }

  get waitedS() {
    return (performance.now() - this.#beganMs) / 1000;
  }

  /** null before there is one */
  get firstTokenS() {
    return this.tokens ? (this.#firstMs - this.#beganMs) / 1000 : null;
  }

  /** After the first, whose time is another matter; null before there are two. */
  get tokensPerS() {
    const seconds = (this.#lastMs - this.#firstMs) / 1000;
    return this.tokens > 1 && seconds > 0 ? (this.tokens - 1) / seconds : null;
  }
}
