import { element, show } from "./element.js";
import { duration, rate, several } from "./figures.js";
import { Stopwatch } from "./stopwatch.js";

const MEASURE_MS = 250;

const ENDS = {
  stop: "",
  length: "ended at the limit of tokens",
  cancelled: "stopped",
};

/** One prompt and its answer, as it comes. */
export class Answer {
  #text = document.createTextNode("");
  #said = element("div", { class: "said answer" }, this.#text);
  #measured = element("span");
  #end = element("span");
  #copy = element("button", { type: "button", class: "plain" }, "Copy");
  #failed = element("div", { class: "failed", role: "alert", hidden: "" });
  #pending = "";
  #drawing = 0;
  #measuring = 0;
  #stopwatch = new Stopwatch();
  #onGrown;
  text = "";
  node;

  /**
   * @param {{prompt: string, raw: boolean, model: string}} asked
   * @param {() => void} onGrown called after it has become longer
   */
  constructor({ prompt, raw, model }, onGrown) {
    this.#onGrown = onGrown;
    this.#copy.addEventListener("click", () => this.#copyText());
    this.#copy.hidden = true;
    this.node = element(
      "article",
      { class: raw ? "turn raw" : "turn" },
      element("h3", {}, raw ? "Prompt" : "You"),
      element("div", { class: "said asked" }, prompt),
      element("h3", {}, model),
      this.#said,
      element("div", { class: "measured" }, this.#copy, this.#measured, this.#end),
      this.#failed,
    );
  }

  /** It is asked for from now on, maybe not for the first time. */
  begin() {
    this.text = this.#text.data = this.#pending = "";
    this.#failed.hidden = this.#copy.hidden = true;
    show(this.#end, "");
    this.#stopwatch = new Stopwatch();
    this.node.dataset.running = "";
    this.#measuring = setInterval(() => this.#measure(), MEASURE_MS);
    this.#measure();
  }

  /** Drawn with the next frame, however many come before it. */
  add(text, tokens) {
    this.#stopwatch.count(tokens);
    this.text += text;
    this.#pending += text;
    this.#drawing ||= requestAnimationFrame(() => this.#draw());
  }

  /** @param {string} reason one of `ENDS` */
  end(reason) {
    this.#stop();
    show(this.#end, ENDS[reason] ?? reason);
    return `${reason === "cancelled" ? "Stopped" : "Answer complete"}, ${this.#tokens()}`;
  }

  /**
   * @param {import("./failure.js").Failure} failure
   * @param {(() => void) | null} again
   */
  fail(failure, again) {
    this.#stop();
    const parts = [element("strong", {}, failure.message)];
    if (failure.advice) parts.push(element("span", {}, failure.advice));
    if (again) parts.push(retryButton(failure.retryAfterS ?? 0, again));
    this.#failed.replaceChildren(...parts);
    this.#failed.hidden = false;
    this.#onGrown();
  }

  #stop() {
    clearInterval(this.#measuring);
    delete this.node.dataset.running;
    this.#draw();
    this.#measure();
    this.#copy.hidden = this.text === "";
  }

  #draw() {
    cancelAnimationFrame(this.#drawing);
    this.#drawing = 0;
    if (this.#pending === "") return;
    this.#text.appendData(this.#pending);
    this.#pending = "";
    this.#onGrown();
  }

  #measure() {
    const { firstTokenS, tokensPerS, waitedS } = this.#stopwatch;
    const running = "running" in this.node.dataset;
    if (firstTokenS === null) {
      show(this.#measured, running ? `waiting for the first token · ${duration(waitedS)}` : "");
      return;
    }
    const parts = [`first token ${duration(firstTokenS)}`];
    if (tokensPerS !== null) parts.push(`${rate(tokensPerS)} tokens/s`);
    parts.push(this.#tokens());
    show(this.#measured, parts.join(" · "));
  }

  #tokens() {
    return several(this.#stopwatch.tokens, "token");
  }

  async #copyText() {
    try {
      await navigator.clipboard.writeText(this.text);
    } catch {
      // Without TLS a browser has no clipboard for pages, but it copies what is selected.
      getSelection()?.selectAllChildren(this.#said);
      document.execCommand("copy");
    }
    show(this.#copy, "Copied");
    setTimeout(() => show(this.#copy, "Copy"), 1500);
  }
}

/** A button that can be pressed once it is time. */
function retryButton(waitS, again) {
  const button = element("button", { type: "button" });
  let left = waitS;
  const tick = () => {
    button.disabled = left > 0;
    show(button, left > 0 ? `Try again in ${left} s` : "Try again");
    if (left-- > 0) setTimeout(tick, 1000);
  };
  button.addEventListener("click", again);
  tick();
  return button;
}
