import { Batch } from "./batch.js";
import { BlockMap } from "./block_map.js";
import { byId, show } from "./element.js";
import { Feed } from "./feed.js";
import { count, duration, percent, rate, several } from "./figures.js";
import { History } from "./history.js";
import { Hues } from "./hues.js";
import { Plot } from "./plot.js";
import { States } from "./states.js";
import { Tenants } from "./tenants.js";

/** What the worker is doing: everything for operators, what is its own for a tenant. */
export class Live {
  #feed;
  #hues = new Hues();
  #history = new History();
  #map = new BlockMap(byId("pool"), this.#hues);
  #states = new States(byId("states"));
  #batch = new Batch(byId("batch"), this.#hues);
  #tenants = new Tenants(byId("tenants"), this.#hues, (name) => this.#choose(name));
  #tokens = new Plot("Tokens/s", rate);
  #first = new Plot("First token", duration);
  #inter = new Plot("Next token", duration);
  #chosen = null;
  #latest = null;

  /**
   * @param {import("./server.js").Server} server
   * @param {() => boolean} isSeen
   */
  constructor(server, isSeen) {
    byId("plots").append(this.#tokens.node, this.#first.node, this.#inter.node);
    this.#feed = new Feed(server, {
      isSeen,
      onSnapshot: (snapshot) => this.#show(snapshot),
      onFailure: (failure) => this.#notice(`${failure.message} ${failure.advice}`),
    });
  }

  /** It may have come into sight. */
  look() {
    this.#feed.look();
  }

  /** Somebody else looks now, who may see other things: what was shown is taken away. */
  clear() {
    this.#history.clear();
    this.#latest = null;
    for (const plot of [this.#tokens, this.#first, this.#inter]) plot.show([], () => null);
    this.#map.show([], []);
    this.#tenants.show([], new Map());
    this.#batch.show({ sequences: [], running: 0 }, null);
    for (const id of ["pool-text", "batch-text"]) show(byId(id), "No figures yet.");
  }

  #show(snapshot) {
    this.#notice("");
    this.#latest = snapshot;
    const rates = this.#history.add(snapshot);
    const { points } = this.#history;
    this.#tokens.show(points, (point) => point.tokensPerS);
    this.#first.show(points, (point) => point.first, (point) => point.firstWorst);
    this.#inter.show(points, (point) => point.inter, (point) => point.interWorst);
    this.#map.show(snapshot.kv.map, snapshot.tenants.map((each) => each.name));
    this.#states.show(snapshot.scope);
    this.#tenants.show(snapshot.tenants, rates.tenantTokensPerS);
    this.#batch.show(snapshot.batch, this.#chosen);
    show(byId("pool-text"), poolText(snapshot));
    show(byId("batch-text"), batchText(snapshot));
    byId("tenants-hint").hidden = snapshot.tenants.length < 2;
    byId("heat").style.width = percent(snapshot.batch.used_share).replace(" ", "");
  }

  #choose(tenant) {
    this.#chosen = tenant;
    this.#map.choose(tenant);
    if (this.#latest) this.#batch.show(this.#latest.batch, tenant);
  }

  #notice(text) {
    const notice = byId("live-notice");
    show(notice, text);
    notice.hidden = text === "";
  }
}

function poolText({ scope, kv, tenants }) {
  const cells = kv.map_stride > 1 ? ` · one in ${kv.map_stride} blocks is drawn` : "";
  if (scope === "tenant") {
    const own = tenants[0]?.blocks ?? 0;
    const full = Math.round(kv.used_share * 100);
    return `${several(own, "block")} of ${count(kv.total_blocks)} are yours · the pool is about ` +
      `${full} % full · ${kv.block_size} tokens a block${cells}`;
  }
  const host = kv.host_blocks
    ? ` · ${count(kv.host_blocks - kv.host_free_blocks)} of ${count(kv.host_blocks)} swapped to the host`
    : "";
  return `${count(kv.used_blocks)} of ${several(kv.total_blocks, "block")} held · ` +
    `${count(kv.cached_blocks)} cached · ${count(kv.free_blocks)} free · ` +
    `${percent(kv.waste)} of what is held is waste · ${kv.block_size} tokens a block${host}${cells}`;
}

function batchText({ scope, batch, counters }) {
  if (scope === "tenant") {
    const full = Math.round(batch.used_share * 100);
    return `${several(batch.running, "sequence")} of yours in the batch · it is about ${full} % full`;
  }
  const { swapped, recompute } = counters.preemptions;
  const preempted = swapped + recompute ? ` · ${several(swapped + recompute, "preemption")}` : "";
  return `${count(batch.running)} of ${several(batch.slots, "slot")} · ` +
    `${several(counters.steps, "step")}${preempted}`;
}
