// The frame of the pages: navigation, refresh every 5 s, light and dark.

import { closeDialogs, fill, h, notice } from "./dom.js";
import { clock } from "./format.js";
import { brokersPage } from "./brokers.js";
import { connectorPage, connectorsPage } from "./connect.js";
import { groupPage } from "./group.js";
import { groupsPage } from "./groups.js";
import { overviewPage } from "./overview.js";
import { partitionsPage } from "./partitions.js";
import { requestsPage } from "./requests.js";
import { subjectPage, subjectsPage } from "./schemas.js";
import { securityPage } from "./security.js";
import { topicPage } from "./topic.js";
import { topicsPage } from "./topics.js";
import { transactionsPage } from "./transactions.js";

const REFRESH_MS = 5000;
/** A refresh that takes longer is shown to be late. */
const LATE_MS = 8000;

/** [name, title, page, whether it exists only if a setting has switched it on] */
const ALL_PAGES = [
  ["overview", "Overview", overviewPage],
  ["topics", "Topics", (names) => (names.length ? topicPage(names) : topicsPage())],
  ["groups", "Groups", (names) => (names.length ? groupPage(names) : groupsPage())],
  ["brokers", "Brokers", brokersPage],
  ["partitions", "Partitions", partitionsPage],
  ["requests", "Requests", requestsPage],
  ["transactions", "Transactions", transactionsPage],
  ["connect", "Connect", (names) => (names.length ? connectorPage(names) : connectorsPage()), true],
  ["schemas", "Schemas", (names) => (names.length ? subjectPage(names) : subjectsPage()), true],
  ["security", "Security", securityPage],
];

const nav = document.getElementById("nav");
const optional = nav.dataset.optional.split(" ");
const PAGES = ALL_PAGES.filter(([name, , , isOptional]) => !isOptional || optional.includes(name));
const main = document.getElementById("main");
const live = document.getElementById("live");
let current = null;

/**
 * A page is { title, root, refresh(signal)?, isRead?(), stop()? }. `refresh` is awaited before the first display and then called
 * every 5 s; it throws when the broker does not respond. A page with `isRead` reads nothing again once that is true.
 */
async function show() {
  const [name = "overview", ...names] = location.hash.replace(/^#\//, "").split("?")[0].split("/").filter(Boolean).map(decoded);
  const found = PAGES.find(([key]) => key === name) ?? PAGES[0];
  current?.controller.abort();
  current?.page?.stop?.();
  clearTimeout(current?.timer);
  const shown = { controller: new AbortController(), page: null, timer: 0 };
  current = shown;
  navigation(found[0]);
  const page = found[2](names);
  shown.page = page;
  document.title = `${page.title} · Milena`;
  const problem = h("div", null);
  fill(main, problem, page.root);
  main.setAttribute("aria-busy", "true");
  await refresh(shown, problem);
  if (shown === current) {
    main.removeAttribute("aria-busy");
    for (const each of document.querySelectorAll("nav [aria-current], .tabs [aria-current]")) {
      const list = each.parentElement; // on a narrow screen it does not show all of its links
      list.scrollLeft = each.offsetLeft - list.offsetLeft - (list.clientWidth - each.offsetWidth) / 2;
    }
    document.body.dataset.ready = location.hash || "#/overview";
  }
}

/** Returns a part of an address; one that is not encoded rightly stays as it is. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function refresh(shown, problem) {
  if (!document.hidden) {
    const late = setTimeout(() => isNotCurrent("not current"), LATE_MS);
    try {
      const wasRead = shown.page.isRead?.();
      await shown.page.refresh?.(shown.controller.signal);
      if (shown !== current) return;
      shown.page.root.hidden = false;
      fill(problem);
      if (!wasRead) {
        live.textContent = `${shown.page.isRead?.() ? "at " : ""}${clock()}`;
        live.className = "";
      }
    } catch (error) {
      if (shown !== current || error.name === "AbortError") return;
      fill(problem, notice(error.message, "bad"));
      shown.page.root.hidden = shown.page.root.querySelector(".skeleton") !== null; // nothing was read yet
      isNotCurrent("not current");
    } finally {
      clearTimeout(late);
    }
  }
  shown.timer = setTimeout(() => refresh(shown, problem), REFRESH_MS);
}

function isNotCurrent(text) {
  live.textContent = text;
  live.className = "late";
}

function navigation(name) {
  fill(
    nav,
    PAGES.map(([key, title]) => h("a", { href: `#/${key}`, "aria-current": key === name ? "page" : null }, title)),
  );
}

/** The consoles of other clusters, as the setting has them: name=address,... */
function clusterChoice() {
  const others = nav.dataset.clusters.split(",").filter(Boolean).map((each) => each.split(/=(.*)/s, 2));
  if (!others.length) return;
  const choice = h("select", { id: "cluster", "aria-label": "Cluster", change: () => location.assign(`${choice.value}/${location.hash.split("/", 2).join("/")}`) },
    h("option", { value: "" }, "This cluster"), others.map(([name, address]) => h("option", { value: address }, name)));
  live.before(choice);
}

const theme = document.getElementById("theme");
const dark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  return (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
}

function showTheme() {
  theme.textContent = isDark() ? "☀" : "☾";
}

theme.addEventListener("click", () => {
  const chosen = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = chosen;
  localStorage.setItem("theme", chosen);
  showTheme();
});
const stored = localStorage.getItem("theme");
if (stored) document.documentElement.dataset.theme = stored;
dark.addEventListener("change", showTheme);
showTheme();
clusterChoice();
addEventListener("hashchange", () => {
  closeDialogs();
  show();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
show();
