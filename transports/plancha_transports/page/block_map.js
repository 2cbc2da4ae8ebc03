import { drawCell, HELD, OTHER, SHARED } from "./cell.js";
import { Hues } from "./hues.js";

const TALLEST = 230;
const LARGEST = 18;
const COOLS_IN_MS = 800;

/**
 * The pool, a cell a block. Blocks that have just been handed out glow and cool down, unless the
 * visitor wants no motion.
 */
export class BlockMap {
  #canvas;
  #pen;
  #hues;
  #still = matchMedia("(prefers-reduced-motion: reduce)");
  #cells = new Int32Array(0);
  #tenants = [];
  #heated = new Map();
  #chosen = null;
  #grid = { columns: 1, pitch: 1, size: 1 };
  #colours;
  #frame = 0;

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Hues} hues
   */
  constructor(canvas, hues) {
    this.#canvas = canvas;
    this.#pen = canvas.getContext("2d");
    this.#hues = hues;
    this.#colours = Hues.colours(canvas);
    new ResizeObserver(() => this.#layOut()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.#colours = Hues.colours(canvas);
      this.#drawAll();
    });
  }

  /**
   * @param {number[]} runs as `kv.map` of a snapshot
   * @param {string[]} tenants as the codes number them
   */
  show(runs, tenants) {
    const cells = unrolled(runs);
    const fits = cells.length === this.#cells.length;
    if (fits && !this.#still.matches) this.#heat(cells);
    this.#cells = cells;
    this.#tenants = tenants;
    if (fits) this.#drawAll();
    else this.#layOut();
  }

  /** @param {string | null} tenant whose blocks alone are shown in full */
  choose(tenant) {
    this.#chosen = tenant;
    this.#drawAll();
  }

  #heat(cells) {
    const now = performance.now();
    cells.forEach((code, index) => {
      if (code >= HELD && this.#cells[index] < HELD) this.#heated.set(index, now);
      else if (code < HELD) this.#heated.delete(index);
    });
    if (this.#heated.size) this.#frame ||= requestAnimationFrame(() => this.#cool());
  }

  #cool() {
    this.#frame = 0;
    const now = performance.now();
    for (const [index, since] of this.#heated) {
      if (now - since >= COOLS_IN_MS) this.#heated.delete(index);
      this.#draw(index, now);
    }
    if (this.#heated.size) this.#frame = requestAnimationFrame(() => this.#cool());
  }

  #layOut() {
    const width = this.#canvas.parentElement.clientWidth;
    const count = this.#cells.length;
    if (width === 0 || count === 0) {
      this.#canvas.width = 0; // takes away what was drawn
      return;
    }
    const fitting = Math.floor(Math.sqrt((width * TALLEST) / count));
    const pitch = Math.max(3, Math.min(LARGEST, fitting));
    const size = pitch - (pitch >= 10 ? 2 : 1);
    const columns = Math.floor((width + pitch - size) / pitch);
    const height = Math.ceil(count / columns) * pitch;
    const scale = window.devicePixelRatio;
    this.#grid = { columns, pitch, size };
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    this.#canvas.style.height = `${height}px`;
    this.#pen.setTransform(scale, 0, 0, scale, 0, 0);
    this.#drawAll();
  }

  #drawAll() {
    const now = performance.now();
    this.#pen.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    this.#cells.forEach((_, index) => this.#draw(index, now));
  }

  #draw(index, now) {
    const { columns, pitch, size } = this.#grid;
    const code = this.#cells[index];
    const tenant = code < HELD ? null : this.#tenants[Math.floor((code - HELD) / 2)];
    const state = code < HELD ? code : (code - HELD) % 2 ? SHARED : HELD;
    const own = tenant === null ? "" : this.#colours.tenants[this.#hues.of(tenant)];
    const at = { x: (index % columns) * pitch, y: Math.floor(index / columns) * pitch, size };
    const faint = this.#chosen !== null && state >= OTHER && tenant !== this.#chosen;
    this.#pen.clearRect(at.x, at.y, pitch, pitch);
    this.#pen.globalAlpha = faint ? 0.2 : 1;
    drawCell(this.#pen, at, state, own, this.#colours);
    this.#glow(at, index, now, faint);
    this.#pen.globalAlpha = 1;
  }

  #glow({ x, y, size }, index, now, faint) {
    const since = this.#heated.get(index);
    if (since === undefined || faint) return;
    this.#pen.globalAlpha = Math.max(0, 1 - (now - since) / COOLS_IN_MS) ** 2;
    this.#pen.fillStyle = this.#colours.bright;
    this.#pen.fillRect(x, y, size, size);
  }
}

function unrolled(runs) {
  let count = 0;
  for (let i = 1; i < runs.length; i += 2) count += runs[i];
  const cells = new Int32Array(count);
  let begin = 0;
  for (let i = 0; i < runs.length; i += 2) {
    cells.fill(runs[i], begin, begin + runs[i + 1]);
    begin += runs[i + 1];
  }
  return cells;
}
