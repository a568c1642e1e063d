// Server-sent events, opened again with a growing delay after an error.

import { url } from "./api.js";

const FIRST_DELAY_MS = 500;
const LAST_DELAY_MS = 8000;

export class LiveEvents extends EventTarget {
  #source = null;
  #delay = FIRST_DELAY_MS;
  #timer = 0;

  /** Begin to receive these kinds of events; each is dispatched under its name with its data as `detail`, besides `open` and `lost`. */
  open(kinds) {
    this.close();
    const source = new EventSource(url("/events"));
    source.addEventListener("open", () => {
      this.#delay = FIRST_DELAY_MS;
      this.dispatchEvent(new Event("open"));
    });
    source.addEventListener("error", () => {
      source.close();
      this.dispatchEvent(new Event("lost"));
      this.#timer = setTimeout(() => this.open(kinds), this.#delay);
      this.#delay = Math.min(this.#delay * 2, LAST_DELAY_MS);
    });
    for (const kind of kinds) {
      source.addEventListener(kind, (event) => this.dispatchEvent(new CustomEvent(kind, { detail: JSON.parse(event.data) })));
    }
    this.#source = source;
  }

  close() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }
}
