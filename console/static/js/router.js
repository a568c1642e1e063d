// The address of a page is in the fragment of the URL: `#/queues/orders?tab=consumers`.

/** A route: a pattern like `/queues/:name` and what it shows. */
export class Router extends EventTarget {
  #routes;

  constructor(routes) {
    super();
    this.#routes = Object.entries(routes).map(([pattern, page]) => ({ parts: pattern.split("/"), page }));
    addEventListener("hashchange", () => this.#changed());
  }

  /** The place that the address names: `page`, `params` and `query`; null if no route matches. */
  get place() {
    const [path, search = ""] = location.hash.replace(/^#/, "").split("?");
    const parts = (path || "/").split("/");
    for (const { parts: pattern, page } of this.#routes) {
      const params = match(pattern, parts);
      if (params) return { page, params, path, query: Object.fromEntries(new URLSearchParams(search)) };
    }
    return null;
  }

  /** Changes arguments of the address without a new page; empty ones are removed. */
  replaceQuery(changes) {
    const [path, search = ""] = location.hash.replace(/^#/, "").split("?");
    const query = new URLSearchParams(search);
    for (const [key, value] of Object.entries(changes)) {
      if (value === "" || value === null || value === undefined) query.delete(key);
      else query.set(key, value);
    }
    history.replaceState(null, "", `#${path}${query.size ? `?${query}` : ""}`);
  }

  #changed() {
    if (location.hash === "#main") return;  // the skip link
    this.dispatchEvent(new Event("change"));
  }
}

/** The address of a page: to`/queues/${name}`. */
export const to = (parts, ...values) => `#${parts.reduce((all, part, number) => all + encodeURIComponent(values[number - 1]) + part)}`;

function match(pattern, parts) {
  if (pattern.length !== parts.length) return null;
  const params = {};
  for (const [number, part] of pattern.entries()) {
    if (part.startsWith(":")) {
      if (!parts[number]) return null;
      try { params[part.slice(1)] = decodeURIComponent(parts[number]); } catch { return null; }
    } else if (part !== parts[number]) return null;
  }
  return params;
}
