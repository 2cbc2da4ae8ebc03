import { byId, show } from "./element.js";

/** Where the key is typed. */
export class KeyDialog {
  #dialog = byId("key-dialog");
  #input = byId("key");

  /**
   * @param {import("./server.js").Server} server
   * @param {() => void} onChange the key is another, or none
   */
  constructor(server, onChange) {
    byId("key-button").addEventListener("click", () => this.ask());
    byId("key-cancel").addEventListener("click", () => this.#dialog.close());
    byId("key-forget").addEventListener("click", () => this.#set(server, null, onChange));
    byId("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const key = this.#input.value.trim();
      if (key === "") show(byId("key-wrong"), "Type a key first, or forget the one there is.");
      else this.#set(server, key, onChange);
    });
    this.#dialog.addEventListener("close", () => {
      this.#input.value = "";
    });
  }

  /** @param {string} [wrong] why */
  ask(wrong = "") {
    show(byId("key-wrong"), wrong);
    if (!this.#dialog.open) this.#dialog.showModal();
    this.#input.focus();
  }

  #set(server, key, onChange) {
    server.key = key;
    this.#dialog.close();
    onChange();
  }
}
