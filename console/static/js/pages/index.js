// The pages by their addresses.

import { link } from "../parts/basics.js";
import { clusterPage } from "./cluster.js";
import { configurationPage } from "./configuration.js";
import { connectionsPage } from "./connections.js";
import { exchangePage, exchangesPage } from "./exchanges.js";
import { journalPage } from "./journal.js";
import { logsPage } from "./logs.js";
import { messagePage } from "./message.js";
import { messagesPage } from "./messages.js";
import { overviewPage } from "./overview.js";
import { page } from "./page.js";
import { queuePage } from "./queue.js";
import { queuesPage } from "./queues.js";
import { timePage } from "./time.js";
import { tracePage } from "./trace.js";
import { transactionsPage } from "./transactions.js";
import { userPage, usersPage } from "./users.js";

const nowhere = () => page("This page does not exist", { lead: "The address does not name a page of the console.", actions: [link("Go to the overview", "#/", { kind: "primary" })] });

export const PAGES = {
  "/": overviewPage,
  "/queues": queuesPage,
  "/queues/:name": queuePage,
  "/queues/:name/messages": messagesPage,
  "/queues/:name/messages/:position": messagePage,
  "/exchanges": exchangesPage,
  "/exchanges/:name": exchangePage,
  "/connections": connectionsPage,
  "/transactions": transactionsPage,
  "/trace": tracePage,
  "/time": timePage,
  "/journal": journalPage,
  "/cluster": clusterPage,
  "/users": usersPage,
  "/users/:name": userPage,
  "/configuration": configurationPage,
  "/logs": logsPage,
  nowhere,
};
