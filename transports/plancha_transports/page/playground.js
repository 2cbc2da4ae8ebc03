import { Conversation } from "./conversation.js";
import { byId } from "./element.js";
import { Sampling } from "./sampling.js";

/** The form that asks. */
export class Playground {
  #conversation;
  #sampling = new Sampling();
  #prompt = byId("prompt");
  #model = byId("model");
  #send = byId("send");
  #stop = byId("stop-button");

  /** @param {import("./stream.js").Stream} stream */
  constructor(stream) {
    this.#conversation = new Conversation(stream, () => this.#update());
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
    this.#prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.#ask();
    });
    this.#prompt.addEventListener("input", () => this.#update());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) this.#halt();
    });
    this.#stop.addEventListener("click", () => this.#halt());
    byId("new-conversation").addEventListener("click", () => {
      this.#conversation.clear();
      this.#prompt.focus();
    });
  }

  /** @param {string[]} models that can be asked now */
  offer(models) {
    const chosen = this.#model.value;
    this.#model.replaceChildren(...models.map((model) => new Option(model, model)));
    if (models.includes(chosen)) this.#model.value = chosen;
    this.#model.disabled = models.length === 0;
    this.#update();
  }

  #ask() {
    if (this.#send.disabled) return;
    const fields = this.#sampling.read();
    if (fields === null) return;
    const prompt = this.#prompt.value;
    const raw = document.querySelector("input[name=mode]:checked").value === "raw";
    this.#prompt.value = "";
    this.#prompt.focus();
    this.#conversation.ask({
      prompt, raw, fields, model: this.#model.value, system: this.#sampling.system,
    });
  }

  #halt() {
    if (!this.#conversation.running) return;
    this.#prompt.focus(); // a button that cannot be pressed any more loses the focus
    this.#conversation.stop();
  }

  #update() {
    const { running } = this.#conversation;
    this.#send.disabled = running || this.#model.disabled || this.#prompt.value === "";
    this.#stop.disabled = !running;
  }
}
