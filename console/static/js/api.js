// The client of the HTTP API: CSRF token, errors, and what they say about the connection.

const ROOT = "/api/v1";

/** An answer that is an error. `status` is 0 if the console did not answer; `field` is the key of the body that is invalid, if it is about one. */
export class ApiError extends Error {
  constructor(status, condition, text, field = "") {
    super(text);
    this.status = status;
    this.condition = condition;
    this.field = field;
  }

  get isUnreachable() {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

/** Events: `expired` (the session ended), `unreachable` and `reachable` (console or broker). */
export class Api extends EventTarget {
  #csrf = "";

  /** Signs in with these credentials; the session. */
  async signIn(user, password) {
    return this.#remember(await this.#fetch("POST", "/session", { body: { user: user || null, password } }));
  }

  /** The session of this browser, or null. A broker without users on this machine gets an anonymous one. */
  async session() {
    const found = await this.#fetch("GET", "/session", { query: { optional: true } });
    if (found?.login === "anonymous") return this.signIn("", "").catch(() => null);
    return found && this.#remember(found);
  }

  async signOut() {
    await this.#fetch("DELETE", "/session", {});
    this.#csrf = "";
  }

  get(path, query, signal) { return this.#call("GET", path, { query, signal }); }
  post(path, body, query) { return this.#call("POST", path, { body, query }); }
  patch(path, body) { return this.#call("PATCH", path, { body }); }
  delete(path, query, body) { return this.#call("DELETE", path, { query, body }); }

  async #call(method, path, options) {
    try {
      const answer = await this.#fetch(method, path, options);
      this.dispatchEvent(new Event("reachable"));
      return answer;
    } catch (error) {
      if (error.status === 401) this.dispatchEvent(new Event("expired"));
      else if (error.isUnreachable) this.dispatchEvent(new CustomEvent("unreachable", { detail: error }));
      throw error;
    }
  }

  async #fetch(method, path, { query, body, signal }) {
    const headers = { Accept: "application/json" };
    if (method !== "GET") headers["X-CSRF-Token"] = this.#csrf;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(url(path, query), { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "console:unreachable", "The console does not answer.");
    }
    const answer = response.status === 204 ? null : await response.json().catch((error) => { if (error.name === "AbortError") throw error; return null; });
    if (response.ok) return answer;
    throw new ApiError(response.status, answer?.error?.condition ?? "", answer?.error?.text ?? `The console answered with status ${response.status}.`, answer?.error?.field);
  }

  #remember(session) {
    this.#csrf = session.csrf;
    return session;
  }
}

/** The address of a resource. Empty arguments are left out. */
export function url(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given).toString();
  return ROOT + path + (text ? `?${text}` : "");
}

/** A path below the root of the API; each part that comes from outside is encoded: api`/queues/${name}`. */
export const path = (parts, ...values) => parts.reduce((all, part, number) => all + encodeURIComponent(values[number - 1]) + part);
