/** How one block of the pool is drawn: its shape says its state, its colour whose it is. */

export const FREE = 0;
export const CACHED = 1;
export const OTHER = 2;
export const HELD = 3;
export const SHARED = 4;

const SMALL = 5;

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {{x: number, y: number, size: number}} at
 * @param {number} state one of the above
 * @param {string} own the tenant's colour
 * @param {{panel: string, cold: string, cached: string, other: string}} colours
 */
export function drawCell(pen, { x, y, size }, state, own, colours) {
  switch (state) {
    case FREE:
      drawFree(pen, x, y, size, colours.cold);
      break;
    case CACHED:
      pen.fillStyle = colours.cached;
      pen.fillRect(x, y, size, size);
      break;
    case OTHER:
      drawOther(pen, x, y, size, colours);
      break;
    default:
      pen.fillStyle = own;
      pen.fillRect(x, y, size, size);
      if (state === SHARED && size >= SMALL) drawHole(pen, x, y, size, colours.panel);
  }
}

function drawFree(pen, x, y, size, colour) {
  const dot = size >= SMALL ? 2 : 1;
  const inset = Math.floor((size - dot) / 2);
  pen.fillStyle = colour;
  pen.fillRect(x + inset, y + inset, dot, dot);
}

function drawOther(pen, x, y, size, { other, panel }) {
  pen.fillStyle = other;
  pen.fillRect(x, y, size, size);
  if (size < SMALL) return;
  pen.strokeStyle = panel;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(x, y + size);
  pen.lineTo(x + size, y);
  pen.stroke();
}

function drawHole(pen, x, y, size, panel) {
  const odd = size % 2; // as the cell is, so that its edges fall on pixels
  const hole = Math.max(2 + odd, 2 * Math.round((size / 3 - odd) / 2) + odd);
  const inset = (size - hole) / 2;
  pen.fillStyle = panel;
  pen.fillRect(x + inset, y + inset, hole, hole);
}
