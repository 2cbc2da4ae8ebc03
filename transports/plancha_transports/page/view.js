import { byId } from "./element.js";

const VIEWS = ["playground", "live"];

/** Which of the two is shown where there is no room for both; the address says it. */
export class View {
  #wide = matchMedia("(min-width: 68rem)");
  #onChange;

  /** @param {() => void} onChange */
  constructor(onChange) {
    this.#onChange = onChange;
    window.addEventListener("hashchange", () => this.#apply());
    this.#wide.addEventListener("change", onChange);
    byId("skip").addEventListener("click", (event) => {
      event.preventDefault();
      if (!this.shows("playground")) location.hash = "playground";
      this.#apply();
      byId("prompt").focus();
    });
    this.#apply();
  }

  shows(view) {
    return this.#wide.matches || document.body.dataset.view === view;
  }

  #apply() {
    const named = location.hash.slice(1);
    const view = VIEWS.includes(named) ? named : "playground";
    document.body.dataset.view = view;
    for (const each of VIEWS) {
      const link = byId(`to-${each}`);
      if (each === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.#onChange();
  }
}
