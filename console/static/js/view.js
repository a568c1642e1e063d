// What a page receives: its place, its end, and the means to follow changes.

/** One visit of a page. `signal` is aborted when the page is left. */
export class View {
  #ended = new AbortController();
  #refresh = new Set();

  constructor({ place, api, live, router, session }) {
    this.params = place.params;
    this.query = place.query;
    this.path = place.path;
    this.api = api;
    this.session = session;
    this.live = live;
    this.replaceQuery = (changes) => router.replaceQuery(changes);
  }

  get signal() { return this.#ended.signal; }

  /** Runs *action* whenever the data of the page may have changed. */
  onRefresh(action) { this.#refresh.add(action); }

  refresh() { for (const action of this.#refresh) action(); }

  /** Receives server-sent events of this kind until the page is left. */
  on(kind, action) {
    this.live.addEventListener(kind, (event) => action(event.detail), { signal: this.signal });
  }

  /** Refreshes the page every *seconds* while it is visible and no dialog or menu is open. */
  every(seconds, action = () => this.refresh()) {
    const timer = setInterval(() => { if (!document.hidden && !document.querySelector("dialog[open], :popover-open")) action(); }, seconds * 1000);
    this.signal.addEventListener("abort", () => clearInterval(timer));
  }

  go(hash) { location.hash = hash; }

  end() { this.#ended.abort(); }
}
