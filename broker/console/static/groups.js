// The list of groups.

import { getJson } from "./api.js";
import { field, fill, h, notice, searchInput, tag } from "./dom.js";
import { count } from "./format.js";
import { pager, table } from "./table.js";

const LIMIT = 50;

export function groupsPage() {
  const query = { search: "", offset: 0 };
  const list = h("div", { class: "card skeleton" });
  const problems = h("div", null);
  const search = searchInput(change);

  function change(parts) {
    Object.assign(query, parts);
    draw().catch((error) => fill(problems, notice(error.message, "bad")));
  }

  async function draw(signal) {
    const page = await getJson("/groups", { ...query, limit: LIMIT }, signal);
    list.className = "card";
    fill(problems, page.unavailable.map((each) => notice(`Broker ${each.broker} did not respond: ${each.reason}. The groups that it coordinates are missing.`)));
    fill(list,
      table(`${count(page.total)} groups`, [
        { title: "Group", of: (row) => h("a", { href: `#/groups/${encodeURIComponent(row.group)}` }, row.group) },
        { title: "State", of: (row) => stateTag(row.state) },
        { title: "Protocol", of: (row) => row.protocol_type || "–" },
        { title: "Coordinator", number: true, of: (row) => row.coordinator },
        { title: "Members", number: true, of: (row) => count(row.members) },
        { title: "Topics", number: true, of: (row) => count(row.topics) },
        { title: "Lag", number: true, of: (row) => count(row.lag) },
      ], page.groups, { onRow: (row) => (location.hash = `#/groups/${encodeURIComponent(row.group)}`), none: ["No groups", "Groups appear when a consumer joins one or commits offsets."] }),
      page.total > LIMIT ? pager(query.offset, LIMIT, page.total, (offset) => change({ offset })) : null);
  }

  return {
    title: "Groups",
    root: h("div", null, h("div", { class: "head" }, h("h1", null, "Groups")), h("div", { class: "form" }, field("Search", search, "wide")), problems, list),
    refresh: draw,
  };
}

export function stateTag(state) {
  return tag(state, { Stable: "good", Empty: "", Dead: "bad" }[state] ?? "warn");
}
