import { byId, show } from "./element.js";
import { KeyDialog } from "./key_dialog.js";
import { Live } from "./live.js";
import { Playground } from "./playground.js";
import { Server } from "./server.js";
import { Stream } from "./stream.js";
import { View } from "./view.js";

const AGAIN_MS = 2000;
const LOST_MS = 1000; // a connection that is back sooner than this is not worth a word

const server = new Server();
const stream = new Stream(server, told);
const playground = new Playground(stream);
const key = new KeyDialog(server, () => {
  live.clear();
  begin();
});
let live = null;
const view = new View(() => live?.look());
live = new Live(server, () => view.shows("live"));
let waiting = 0;
let losing = 0;
let wasLost = false;

/** What can be asked, and by whom: again until something can. */
async function begin() {
  clearTimeout(waiting);
  show(byId("key-button"), server.key ? "API key ✓" : "API key");
  try {
    const models = (await server.get("v1/models")).data.map((model) => model.id);
    playground.offer(models);
    if (models.length) stream.open();
    else if (await isStarting()) return;
  } catch (failure) {
    playground.offer([]);
    stream.close();
    if (failure.needsKey) {
      state("Needs an API key");
      key.ask(server.key ? "The server does not know this key." : "");
      return;
    }
    state(failure.message);
    waiting = setTimeout(begin, 1000 * (failure.retryAfterS ?? 0) || AGAIN_MS);
    return;
  }
  live.look();
}

/** Why nothing can be asked; it is looked at again later. */
async function isStarting() {
  waiting = setTimeout(begin, AGAIN_MS);
  const { status, reason, phase, percent } = await server.startup();
  if (status === "ready") {
    state("Your key may use no model here");
    return false;
  }
  const doing = reason && reason !== "loading" ? reason : phase;
  state(`Not ready: ${doing}${percent ? `, ${percent} %` : ""}`);
  return true;
}

/** A server that is back may have another model, or none yet. */
async function lookAgain() {
  const models = await server.get("v1/models").then(({ data }) => data, () => []);
  if (models.length) playground.offer(models.map((model) => model.id));
  else begin();
}

function told(connection) {
  clearTimeout(losing);
  if (connection === "open") {
    state("Ready");
    if (wasLost) lookAgain();
    wasLost = false;
  } else if (connection === "connecting") losing = setTimeout(() => state("Connecting…"), LOST_MS);
  else {
    wasLost = true;
    state("No connection; trying again");
    server.get("v1/models").catch((failure) => failure.needsKey && begin());
  }
}

function state(text) {
  show(byId("state"), text);
}

begin();
