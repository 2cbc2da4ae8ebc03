const KEPT_S = 120;
const RATE_OVER_S = 1.5;

/**
 * The last two minutes of snapshots, as series.
 *
 * Counters grow from the worker's start, so a rate is the difference of two snapshots.
 */
export class History {
  #counts = [];
  points = [];

  /** @returns {{tokensPerS: number | null, tenantTokensPerS: Map<string, number>}} */
  add(snapshot) {
    const last = this.#counts.at(-1);
    if (last && snapshot.at_s < last.atS) this.clear(); // another worker
    if (snapshot.at_s !== this.#counts.at(-1)?.atS) this.#count(snapshot);
    const rates = this.#rates();
    if (this.points.at(-1)?.atS !== snapshot.at_s) {
      const { first_token: first, inter_token: inter } = snapshot.recent;
      this.points.push({
        atS: snapshot.at_s,
        tokensPerS: rates.tokensPerS,
        first: first.p50_s,
        firstWorst: first.p99_s,
        inter: inter.p50_s,
        interWorst: inter.p99_s,
      });
      while (this.points[0].atS < snapshot.at_s - KEPT_S) this.points.shift();
    }
    return rates;
  }

  clear() {
    this.#counts = [];
    this.points = [];
  }

  #count(snapshot) {
    this.#counts.push({
      atS: snapshot.at_s,
      tokens: snapshot.counters.generated_tokens,
      tenants: new Map(snapshot.tenants.map((each) => [each.name, each.generated_tokens])),
    });
    while (this.#counts.length > 2 && this.#counts[1].atS <= snapshot.at_s - RATE_OVER_S) {
      this.#counts.shift();
    }
  }

  #rates() {
    const first = this.#counts[0];
    const last = this.#counts.at(-1);
    const seconds = last.atS - first.atS;
    const tenantTokensPerS = new Map();
    if (seconds === 0) return { tokensPerS: null, tenantTokensPerS };
    for (const [name, tokens] of last.tenants) {
      tenantTokensPerS.set(name, (tokens - (first.tenants.get(name) ?? tokens)) / seconds);
    }
    return { tokensPerS: (last.tokens - first.tokens) / seconds, tenantTokensPerS };
  }
}
