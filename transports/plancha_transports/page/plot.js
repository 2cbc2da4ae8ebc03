import { element, show } from "./element.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240;
const HEIGHT = 56;
const SPAN_S = 120;

/** Two minutes of one figure: a line, and a dashed one for the worst hundredth. */
export class Plot {
  #name;
  #format;
  #now = element("p", { class: "now" });
  #top = element("span", { class: "top", "aria-hidden": "true" });
  #svg = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  #worst = svg("path", { class: "worst" });
  #line = svg("path", {});
  node;

  /**
   * @param {string} name
   * @param {(value: number) => string} format
   */
  constructor(name, format) {
    this.#name = name;
    this.#format = format;
    this.#svg.append(this.#worst, this.#line);
    this.#svg.setAttribute("aria-label", `${name}: no figures yet`);
    this.node = element(
      "div", { class: "plot" },
      element("h3", {}, name), this.#now,
      element("div", { class: "drawn" }, this.#top, this.#svg),
      element("div", { class: "times", "aria-hidden": "true" },
        element("span", {}, "2 min ago"), element("span", {}, "now")),
    );
  }

  /**
   * @param {{atS: number}[]} points the oldest first
   * @param {(point: any) => number | null} value
   * @param {((point: any) => number | null) | null} [worst]
   */
  show(points, value, worst = null) {
    const nowS = points.at(-1)?.atS ?? 0;
    const values = points.flatMap((point) => [value(point) ?? 0, worst?.(point) ?? 0]);
    const top = roundUp(Math.max(...values, 0));
    this.#line.setAttribute("d", path(points, value, nowS, top));
    this.#worst.setAttribute("d", worst ? path(points, worst, nowS, top) : "");
    show(this.#top, top ? this.#format(top) : "");
    this.#tell(points.at(-1), value, worst, Math.max(...points.map((each) => value(each) ?? 0), 0));
  }

  #tell(last, value, worst, highest) {
    const now = last ? value(last) : null;
    const worstNow = last && worst ? worst(last) : null;
    const said = now === null ? "–" : this.#format(now);
    if (this.#now.dataset.said !== `${said} ${worstNow}`) {
      this.#now.dataset.said = `${said} ${worstNow}`;
      this.#now.replaceChildren(said);
      if (worstNow !== null) {
        this.#now.append(" ", element("small", {}, element("span", {}, "median, "), `p99 ${this.#format(worstNow)}`));
      }
    }
    const label = `${this.#name}, the last two minutes: now ${said}, at most ${this.#format(highest)}`;
    this.#svg.setAttribute("aria-label", label);
  }
}

function path(points, value, nowS, top) {
  let drawn = "";
  let pen = "M";
  for (const point of points) {
    const y = value(point);
    if (y === null) {
      pen = "M";
      continue;
    }
    const x = WIDTH * (1 - (nowS - point.atS) / SPAN_S);
    drawn += `${pen}${x.toFixed(1)} ${(HEIGHT * (1 - (top ? y / top : 0))).toFixed(1)}`;
    pen = "L";
  }
  return drawn;
}

/** To a round number, so that the scale seldom moves. */
function roundUp(value) {
  if (value <= 0) return 0;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value * 0.999);
}

function svg(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
