import { element, show } from "./element.js";
import { count, duration } from "./figures.js";

const MOST_ROWS = 32;

/** A row for each sequence of the batch: how far its prompt and its output are. */
export class Batch {
  #list;
  #hues;
  #rows = [];
  #more = element("li", { class: "more" });

  /**
   * @param {HTMLElement} list
   * @param {import("./hues.js").Hues} hues
   */
  constructor(list, hues) {
    this.#list = list;
    this.#hues = hues;
  }

  /**
   * @param {any} batch of a snapshot
   * @param {string | null} chosen the tenant whose sequences alone are shown
   */
  show(batch, chosen) {
    const found = batch.sequences.filter((each) => chosen === null || each.tenant === chosen);
    const shown = found.slice(0, MOST_ROWS);
    while (this.#rows.length < shown.length) this.#rows.push(row());
    shown.forEach((sequence, index) => this.#fill(this.#rows[index], sequence));
    const all = chosen === null ? batch.running : found.length;
    const left = all - shown.length;
    show(this.#more, left ? `and ${count(left)} more` : "");
    const nodes = this.#rows.slice(0, shown.length).map((each) => each.node);
    if (left) nodes.push(this.#more);
    if (nodes.length !== this.#list.children.length || nodes.at(-1) !== this.#list.lastChild) {
      this.#list.replaceChildren(...nodes);
    }
  }

  #fill(row, sequence) {
    const { prompt_tokens: prompt, known_tokens: known, limit_tokens: limit } = sequence;
    const computed = Math.min(sequence.computed_tokens, prompt);
    const output = known - prompt;
    row.node.style.setProperty("--own", this.#hues.variable(sequence.tenant));
    show(row.name, sequence.tenant);
    row.computed.style.width = `${(100 * computed) / limit}%`;
    row.prompt.style.width = `${(100 * (prompt - computed)) / limit}%`;
    row.output.style.width = `${(100 * output) / limit}%`;
    row.output.hidden = output === 0;
    const doing =
      sequence.state === "prefill"
        ? `prefill ${count(computed)} of ${count(prompt)}`
        : `decode ${count(output)} of ${count(limit - prompt)}`;
    const again = sequence.preemptions ? ` · preempted ${sequence.preemptions}×` : "";
    show(row.doing, `${doing} · ${duration(sequence.age_s)}${again}`);
  }
}

function row() {
  const name = element("b");
  const parts = ["computed", "prompt", "output"].map((each) => element("span", { class: each }));
  const doing = element("span", { class: "doing" });
  const node = element(
    "li", {},
    element("span", { class: "whose" }, element("span", { class: "swatch" }), name),
    element("span", { class: "bar", "aria-hidden": "true" }, ...parts),
    doing,
  );
  const [computed, prompt, output] = parts;
  return { node, name, computed, prompt, output, doing };
}
