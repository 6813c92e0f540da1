import assert from "node:assert/strict";
import { test } from "node:test";
import { totalOrders } from "./totals.js";

test("orders are totalled by customer", async () => {
  const totals = await totalOrders(process.env.KAFKA_BOOTSTRAP_SERVERS, "orders", "totals-node", 3);
  assert.deepEqual([...totals].sort(), [["ann", 12.5], ["bob", 5]]);
});
