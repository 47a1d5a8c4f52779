import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { batchable, callState, coveredBy, currentTask, decidable, entriesOf, pendingIn, queuedTasks, soonest, tally, taskState, together, workedMs } from "../../static/app/model.js";
import { attachedOf, piecesOf } from "../../static/app/goal.js";
import { initial, reduceAll } from "../../static/app/reducer.js";
import { unmarked } from "../../static/app/sentences.js";
import { speak, t } from "../../static/app/text.js";
import { hear, told, toldEvidence } from "../../static/app/told.js";
import { World } from "./world.js";

test("every call and task of any log has a state that has a word", () => {
  for (let seed = 1; seed < 40; seed += 1) {
    const world = new World(seed).session_of(3);
    for (let end = 1; end <= world.frames.length; end += 7) {
      const state = reduceAll(initial("s1"), world.frames.slice(0, end));
      for (const task of Object.values(state.tasks)) {
        assert.match(taskState(task), /^(queued|run|wait|done|failed|stopped|limit)$/);
        for (const call of Object.values(task.calls)) assert.match(callState(call, task), /^(wait|run|done|failed|blocked|skipped|next)$/);
        assert.ok(workedMs(task, Date.parse("2027-01-01")) >= 0);
      }
      assert.ok(currentTask(state) || state.order.length === 0);
    }
  }
});

test("a Chinese word put into a Chinese sentence brings no space, a Latin one keeps it", () => {
  speak({ language: "zh-Hans", strings: { "{who} rejected:": "{who} 已拒绝：", "Made by {who} today": "由 {who} 今天设定" } });
  assert.equal(t("{who} rejected:", { who: "你" }), "你已拒绝：");
  assert.equal(t("{who} rejected:", { who: "Ines" }), "Ines 已拒绝：");
  assert.equal(t("Made by {who} today", { who: "王芳" }), "由王芳今天设定");
  speak({});
});

test("the files that a goal names at its end are told apart from its words", () => {
  assert.deepEqual(attachedOf("Sum up\n\nAttached files:\n- a b.csv\n- 中/c.md"), { words: "Sum up", files: ["a b.csv", "中/c.md"] });
  assert.deepEqual(attachedOf("Attached files:\n- a.csv"), { words: "", files: ["a.csv"] });
  for (const text of ["Attached files:\n- a\nand more", "Attached files:\n", "See\nAttached files:\n- a", "- a"]) {
    assert.deepEqual(attachedOf(text), { words: text, files: [] });
  }
});

test("entries have one key each, and only the last step is open", () => {
  for (let seed = 1; seed < 60; seed += 1) {
    const state = reduceAll(initial("s1"), new World(seed).session_of(2).log);
    for (const task of Object.values(state.tasks)) {
      const entries = entriesOf(task);
      assert.equal(new Set(entries.map((entry) => entry.key)).size, entries.length, `seed ${seed}`);
      assert.ok(entries.filter((entry) => entry.kind === "open").length <= 1);
    }
  }
});

test("a task that waits behind another one is in the queue, not in the thread", () => {
  const created = (id, position) => ({ sequence: 1, position, type: "task_created", task_id: id, created_at: "x", payload: { goal: "g", session_id: "s1", trigger: "api", follow_up_of: null } });
  const state = reduceAll(initial("s1"), [created("one", 1), created("two", 2)]);
  assert.deepEqual(queuedTasks(state).map((task) => task.id), ["two"]);
  assert.equal(currentTask(state).id, "one");
  assert.deepEqual(pendingIn(state), []);
});

test("soonest first; without a limit last", () => {
  const list = [{ expires_at: null, created_at: "1" }, { expires_at: "2026-02", created_at: "2" }, { expires_at: "2026-01", created_at: "3" }];
  assert.deepEqual(list.sort(soonest).map((each) => each.created_at), ["3", "2", "1"]);
});

test("only what the same tool does in one folder, without high risk, is decided together", () => {
  const write = (path, more) => ({ kind: "call", name: "write_file", risk: "low", arguments: { path }, ...more });
  assert.equal(together([write("a/1.md"), write("a/2.md")]), true);
  assert.equal(together([write("a/1.md"), write("b/2.md")]), false);
  assert.equal(together([write("a/1.md"), write("a/2.md", { risk: "high" })]), false);
  assert.equal(batchable(write("a", { kind: "unknown_effect" })), false);
  assert.equal(together([]), false);
});

test("people read what is inside the mark", () => {
  assert.equal(unmarked('<untrusted source="x">\na\n<\\/untrusted>b\n</untrusted>'), "a\n</untrusted>b");
  assert.equal(unmarked("plain"), "plain");
});

test("what a goal brings along stands by itself, as in Python", () => {
  const cases = JSON.parse(readFileSync(new URL("../tasks/data/goals.json", import.meta.url)));
  assert.ok(cases.length > 5);
  for (const { goal, pieces } of cases) assert.deepEqual(piecesOf(goal).map(({ text, source }) => [text, source]), pieces);
});

test("what the server says is read in the reader's language, as in Python", () => {
  const read = (path) => JSON.parse(readFileSync(new URL(path, import.meta.url)));
  hear({ told: read("../../locale/server_zh_Hans.json") });
  for (const [english, chinese] of read("../tasks/data/told.json")) assert.equal(told(english), chinese);
  assert.equal(told("x: ".repeat(1_300)).trim(), "x: ".repeat(1_300).trim());
  hear({});
  assert.equal(told("default: file:write asks"), "default: file:write asks");
});

test("evidence: only where the server alone speaks its lines are read in the reader's language", () => {
  hear({ told: JSON.parse(readFileSync(new URL("../../locale/server_zh_Hans.json", import.meta.url))) });
  const evidence = ["── command", "sandbox: bubblewrap", "", "── where", "sandbox: bubblewrap", "", "── what the line runs", "{path}: a folder"];
  assert.equal(toldEvidence(evidence.join("\n")), ["── 命令", "sandbox: bubblewrap", "", "── 运行位置", "沙箱：bubblewrap", "", "── 此行会运行的内容", "{path}: a folder"].join("\n"));
  hear({});
  assert.equal(toldEvidence(evidence.join("\n")), evidence.join("\n"));
});

test("a tool that does not exist is a failure, not a refusal", () => {
  const task = { ended: true, approvals: {} };
  const call = { finishedAt: "x", ok: false, decision: "deny", approvals: [], problem: null };
  assert.equal(callState({ ...call, capability: "shell:execute" }, task), "blocked");
  assert.equal(callState({ ...call, capability: "", startedAt: null, problem: "There is no tool." }, task), "failed");
});

test("a summary names the steps that it stands for, and its cost counts", () => {
  const events = [
    ["one", "task_created", { goal: "g", session_id: "s1", trigger: "api", follow_up_of: null }],
    ["one", "model_call_started", { step: 1, model: "m", attempt: 1 }],
    ["one", "model_call_started", { step: 2, model: "m", attempt: 1 }],
    ["one", "task_completed", {}],
    ["two", "task_created", { goal: "h", session_id: "s1", trigger: "api", follow_up_of: "one" }],
    ["two", "model_call_started", { step: 1, model: "m", attempt: 1 }],
    ["two", "model_call_started", { step: 2, model: "m", attempt: 1 }],
    ["two", "context_compacted", { step: 3, from_task_id: "one", from_sequence: 3, to_task_id: "two", to_sequence: 2, summary: "S", usage: { input_tokens: 7 }, cost: 0.5 }],
  ];
  const numbers = { one: 0, two: 0 };
  const log = events.map(([task, type, payload], index) => ({ sequence: (numbers[task] += 1), position: index + 1, type, task_id: task, created_at: "2026-01-01T00:00:00.000Z", payload }));
  const state = reduceAll(initial("s1"), log);
  const entry = entriesOf(state.tasks.two).find(({ kind }) => kind === "compacted");
  assert.deepEqual(coveredBy(entry, state).map(({ turn, steps }) => [turn, steps.map((step) => step.number)]), [[1, [2]], [2, [1]]]);
  assert.deepEqual([state.tasks.two.usage.input_tokens, state.tasks.two.cost], [7, 0.5]);
  assert.deepEqual(coveredBy({ ...entry, from_task_id: "elsewhere", to_task_id: "nowhere" }, state), []);
});

test("a yes that is only a vote has decided nothing", () => {
  const failed = { ok: false, error: { message: "No." } };
  const answered = ["approved", "pending", "pending", "rejected"].map((status) => ({ ok: true, approval: { status } }));
  assert.deepEqual(tally(answered), { good: 2, noted: 2, bad: null });
  assert.deepEqual(tally([...answered, failed]), { good: 2, noted: 2, bad: failed });
});

test("who is in an approver group decides what it decides, and nothing else", () => {
  const rights = { can_decide: false, decides: { write: true, "shell:write": false, network: false } };
  const decides = (capability) => decidable(rights, { capability });
  assert.deepEqual(["file:write", "shell:write", "web:network", "file:delete", "constructor"].map(decides), [true, false, false, false, false]);
  assert.equal(decides(undefined), false);
  assert.equal(decidable({ ...rights, can_decide: true }, { capability: "web:network" }), true);
});
