const HUES = 8;

/** A colour for each tenant, which it keeps for as long as the page is open. */
export class Hues {
  #numbers = new Map();

  /** Its number among the colours. */
  of(tenant) {
    if (!this.#numbers.has(tenant)) this.#numbers.set(tenant, this.#numbers.size % HUES);
    return this.#numbers.get(tenant);
  }

  /** For CSS. */
  variable(tenant) {
    return `var(--tenant-${this.of(tenant)})`;
  }

  /** For a canvas: all of them as they are now, light or dark. */
  static colours(node) {
    const style = getComputedStyle(node);
    const named = (name) => style.getPropertyValue(`--${name}`).trim();
    return {
      tenants: Array.from({ length: HUES }, (_, number) => named(`tenant-${number}`)),
      panel: named("panel"),
      cold: named("cold"),
      cached: named("cached"),
      ink: named("ink"),
      other: named("other"),
      bright: named("bright"),
    };
  }
}
