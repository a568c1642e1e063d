// Starts the console: signs in, shows the frame, and opens the page that the address names.

import { Api } from "./api.js";
import { h, put } from "./dom.js";
import { LiveEvents } from "./events.js";
import { PAGES } from "./pages/index.js";
import { signIn } from "./pages/sign_in.js";
import { failed, loading } from "./parts/basics.js";
import { Router } from "./router.js";
import { shell } from "./shell.js";
import { View } from "./view.js";
import { visible } from "./visible.js";

const EVENTS = ["overview", "log", "unavailable"];
const api = new Api();
const live = new LiveEvents();
const router = new Router(PAGES);
const app = document.getElementById("app");
let session = null;
let frame = null;
let view = null;
let lost = false;

async function start() {
  put(app, h("div", { class: "sign-in" }, h("div", { class: "sign-in-card" }, loading(5))));
  try {
    session = await api.session();
  } catch (error) {
    put(app, h("div", { class: "sign-in" }, h("main", { class: "sign-in-card", id: "main" }, failed(error, start))));
    return;
  }
  if (session) enter();
  else leave("");
}

function enter() {
  frame = shell(session, async () => { await api.signOut(); leave(""); });
  put(app, frame.element);
  live.open(EVENTS);
  open();
}

/** Shows the sign-in page; *reason* says why the session ended. */
function leave(reason) {
  view?.end();
  view = null;
  session = null;
  frame = null;
  lost = false;
  live.close();
  for (const one of document.querySelectorAll("dialog")) one.close();
  put(app, signIn(api, reason, (given) => { session = given; enter(); frame.focusHeading(); }));
}

function open() {
  if (!session) return;
  const isFirst = view === null;
  view?.end();
  const place = router.place ?? { page: PAGES.nowhere, params: {}, query: {}, path: null };
  view = new View({ place, api, live, router, session });
  const { title, element } = place.page(view);
  document.title = `${visible(title)} – CairnMQ`;
  frame.show(place.path, element);
  if (!isFirst) {
    scrollTo(0, 0);
    frame.focusHeading();
  }
}

function setLost(isLost, text) {
  if (!session) return;
  frame.banner(isLost ? text : "");
  if (lost && !isLost) view?.refresh();
  lost = isLost;
}

router.addEventListener("change", open);
api.addEventListener("expired", () => {
  if (!session) return;
  const isAnonymous = session.user === null;
  leave("Your session has ended. Sign in again to continue.");
  if (isAnonymous) start();
});
api.addEventListener("unreachable", (event) => setLost(true, event.detail.status ? "The broker cannot be reached. The console tries again." : "The connection to the console is lost. Trying again."));
api.addEventListener("reachable", () => setLost(false));
live.addEventListener("lost", async () => {
  if (!session) return;
  setLost(true, "The connection is lost. Trying again.");
  await api.get("/session").catch(() => {});
});
live.addEventListener("open", () => setLost(false));
live.addEventListener("unavailable", (event) => setLost(true, event.detail.text));
start();
