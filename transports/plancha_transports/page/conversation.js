import { Answer } from "./answer.js";
import { byId } from "./element.js";

const NEAR_THE_END = 48;

/** Turns that have been said, and the one that is being answered. */
export class Conversation {
  #stream;
  #onRunning;
  #transcript = byId("transcript");
  #turns = [];
  #cancel = null;

  /**
   * @param {import("./stream.js").Stream} stream
   * @param {(running: boolean) => void} onRunning
   */
  constructor(stream, onRunning) {
    this.#stream = stream;
    this.#onRunning = onRunning;
  }

  get running() {
    return this.#cancel !== null;
  }

  /** @param {{prompt: string, raw: boolean, model: string, system: string, fields: object}} asked */
  ask(asked) {
    byId("nothing-said").hidden = true;
    const answer = new Answer(asked, () => this.#follow());
    const turn = { asked, answer };
    this.#turns.push(turn);
    this.#transcript.append(answer.node);
    this.#transcript.scrollTop = this.#transcript.scrollHeight;
    this.#run(turn);
  }

  stop() {
    this.#cancel?.();
  }

  clear() {
    this.stop();
    this.#turns = [];
    for (const node of this.#transcript.querySelectorAll(".turn")) node.remove();
    byId("nothing-said").hidden = false;
  }

  #run(turn) {
    const { answer } = turn;
    answer.begin();
    const ended = () => {
      this.#cancel = null;
      this.#onRunning(false);
    };
    this.#cancel = this.#stream.generate(this.#body(turn), {
      onTokens: (text, tokens) => answer.add(text, tokens),
      onEnd: ({ kind, reason }) => {
        ended();
        byId("announcement").textContent = answer.end(kind === "done" ? reason : kind);
      },
      onFailure: (failure) => {
        ended();
        answer.fail(failure, () => this.#again(turn));
      },
    });
    this.#onRunning(true);
  }

  #again(turn) {
    if (this.running) return;
    byId("prompt").focus(); // the button that was pressed is about to go
    this.#run(turn);
  }

  #body(turn) {
    const { prompt, raw, model, system, fields } = turn.asked;
    if (raw) return { ...fields, model, prompt };
    const messages = system ? [{ role: "system", content: system }] : [];
    for (const { asked, answer } of this.#turns.slice(0, this.#turns.indexOf(turn))) {
      if (asked.raw || answer.text === "") continue;
      messages.push({ role: "user", content: asked.prompt });
      messages.push({ role: "assistant", content: answer.text });
    }
    messages.push({ role: "user", content: prompt });
    return { ...fields, model, messages };
  }

  /** Whoever reads the end goes on reading the end; whoever has scrolled up is left there. */
  #follow() {
    const { scrollHeight, scrollTop, clientHeight } = this.#transcript;
    const grown = this.#turns.at(-1)?.answer.node.clientHeight ?? 0;
    if (scrollHeight - scrollTop - clientHeight < NEAR_THE_END + Math.min(grown, 48)) {
      this.#transcript.scrollTop = scrollHeight;
    }
  }
}
