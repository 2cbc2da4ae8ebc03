import { byId, show } from "./element.js";

const NUMBERS = ["temperature", "top_p", "max_tokens", "seed"];

/** What is asked for besides the prompt. What is left empty is left to the server. */
export class Sampling {
  #summary = byId("sampling-summary");

  constructor() {
    for (const name of [...NUMBERS, "stop", "system"]) {
      byId(name).addEventListener("input", () => this.#sum());
    }
    this.#sum();
  }

  get system() {
    return byId("system").value.trim();
  }

  /** Fields of a request; null after the first that is wrong has been pointed at. */
  read() {
    const fields = {};
    for (const name of NUMBERS) {
      const input = byId(name);
      if (!input.validity.valid) {
        input.closest("details").open = true;
        input.reportValidity();
        return null;
      }
      if (input.value !== "") fields[name] = input.valueAsNumber;
    }
    const stop = byId("stop").value.split("\n").filter((line) => line !== "");
    if (stop.length) fields.stop = stop;
    return fields;
  }

  #sum() {
    const set = [...NUMBERS, "stop", "system"].filter((name) => byId(name).value !== "");
    const parts = set.map((name) =>
      NUMBERS.includes(name) ? `${name.replace("_", " ")} ${byId(name).value}` : name,
    );
    show(this.#summary, parts.length ? `· ${parts.join(" · ")}` : "· as the model has it");
  }
}
