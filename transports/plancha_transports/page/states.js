import { CACHED, drawCell, FREE, HELD, OTHER, SHARED } from "./cell.js";
import { element } from "./element.js";
import { Hues } from "./hues.js";

const SIZE = 14;

/** The map's legend, drawn as the map is. */
export class States {
  #list;
  #scope = null;

  /** @param {HTMLElement} list */
  constructor(list) {
    this.#list = list;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      const scope = this.#scope;
      this.#scope = null;
      this.show(scope);
    });
  }

  /** @param {"all" | "tenant"} scope what the map tells of */
  show(scope) {
    if (scope === this.#scope) return;
    this.#scope = scope;
    const all = [
      [FREE, "free"],
      [CACHED, "cached"],
      [HELD, "held by a sequence"],
      [SHARED, "shared by several"],
      [OTHER, "shared by tenants"],
    ];
    const own = [
      [HELD, "yours"],
      [SHARED, "shared by several of yours"],
      [OTHER, "everything else"],
    ];
    this.#list.replaceChildren(...(scope === "all" ? all : own).map(([s, name]) => entry(s, name)));
  }
}

function entry(state, name) {
  const canvas = /** @type {HTMLCanvasElement} */ (element("canvas", { "aria-hidden": "true" }));
  const scale = window.devicePixelRatio;
  canvas.width = canvas.height = SIZE * scale;
  const item = element("li", {}, canvas, name);
  const pen = canvas.getContext("2d");
  const colours = Hues.colours(document.documentElement);
  pen.scale(scale, scale);
  drawCell(pen, { x: 0, y: 0, size: SIZE }, state, colours.ink, colours);
  return item;
}
