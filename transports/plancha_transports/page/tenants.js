import { element, show } from "./element.js";
import { count, duration, rate } from "./figures.js";

const COLUMNS = ["Tenant", "Blocks", "Running", "Waiting", "Longest wait", "Tokens/s"];
const LONGEST_BAR = 5; // rem

/** Who shares the machine, and how many of each wait; one of them can be chosen. */
export class Tenants {
  #hues;
  #onChoose;
  #rows = new Map();
  #body = element("tbody", { role: "rowgroup" });
  #nobody = element("p", { class: "quiet hint" }, "Nobody has asked for anything yet.");
  #chosen = null;

  /**
   * @param {HTMLElement} place
   * @param {import("./hues.js").Hues} hues
   * @param {(tenant: string | null) => void} onChoose
   */
  constructor(place, hues, onChoose) {
    this.#hues = hues;
    this.#onChoose = onChoose;
    const heads = COLUMNS.map((name) => element("th", { scope: "col", role: "columnheader" }, name));
    // Roles by name, since a narrow screen lays the table out as something else.
    place.append(
      element("table", { class: "tenants", role: "table", "aria-labelledby": "tenants-title" },
        element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads)),
        this.#body),
      this.#nobody,
    );
  }

  /**
   * @param {any[]} tenants of a snapshot
   * @param {Map<string, number>} tokensPerS
   */
  show(tenants, tokensPerS) {
    this.#nobody.hidden = tenants.length > 0;
    const most = Math.max(1, ...tenants.map((each) => each.waiting));
    const names = new Set(tenants.map((each) => each.name));
    for (const [name, row] of this.#rows) {
      if (names.has(name)) continue;
      row.node.remove();
      this.#rows.delete(name);
      if (name === this.#chosen) this.#choose(null);
    }
    tenants.forEach((tenant, index) => {
      const row = this.#row(tenant.name);
      if (this.#body.children[index] !== row.node) {
        this.#body.insertBefore(row.node, this.#body.children[index] ?? null);
      }
      const paused = tenant.paused ? ` + ${count(tenant.paused)} paused` : "";
      const values = [
        count(tenant.blocks), count(tenant.running), count(tenant.waiting) + paused,
        tenant.waiting ? duration(tenant.longest_wait_s) : "–",
        rate(tokensPerS.get(tenant.name) ?? 0),
      ];
      values.forEach((value, column) => show(row.values[column], value));
      row.bar.style.width = `${(LONGEST_BAR * tenant.waiting) / most}rem`;
    });
  }

  #row(name) {
    const known = this.#rows.get(name);
    if (known) return known;
    const values = COLUMNS.slice(1).map(() => document.createElement("span"));
    const bar = element("i", { "aria-hidden": "true" });
    const button = element("button", { type: "button", "aria-pressed": "false" },
      element("span", { class: "swatch" }), name);
    button.addEventListener("click", () => this.#choose(this.#chosen === name ? null : name));
    const cells = values.map((value, column) => {
      const label = COLUMNS[column + 1];
      const cell = element("td", { role: "cell", "data-label": label.replace(" wait", "") }, value);
      if (label === "Waiting") {
        cell.classList.add("queue");
        cell.prepend(bar);
      }
      return cell;
    });
    const node = element("tr", { role: "row" }, element("td", { role: "cell" }, button), ...cells);
    node.style.setProperty("--own", this.#hues.variable(name));
    const row = { node, values, bar, button };
    this.#rows.set(name, row);
    return row;
  }

  #choose(name) {
    this.#chosen = name;
    for (const [each, row] of this.#rows) {
      row.button.setAttribute("aria-pressed", String(each === name));
    }
    this.#onChoose(name);
  }
}
