// What the page would show for recorded streams: node shown.js < {name: frames} > {name: what is shown}.
// Each stream is also cut at every frame: what is shown then must never be more than what the log allows.
import { callState, entriesOf, taskState } from "../../static/app/model.js";
import { initial, reduce, reduceAll } from "../../static/app/reducer.js";

const input = await new Response(process.stdin).json();
const output = Object.fromEntries(Object.entries(input).map(([name, frames]) => [name, shown(frames)]));
process.stdout.write(JSON.stringify(output));

function shown(frames) {
  const session = frames.find((frame) => frame.type === "task_created").payload.session_id;
  const seen = { texts: new Set(), reasoning: new Set(), asked: new Set() };
  let state = initial(session);
  for (const frame of frames) {
    state = reduce(state, frame);
    for (const task of Object.values(state.tasks)) remember(seen, task);
  }
  const log = reduceAll(initial(session), frames.filter((frame) => frame.sequence > 0));
  return {
    tasks: state.order.map((id) => taskView(state.tasks[id])),
    same_as_log: JSON.stringify(state.tasks) === JSON.stringify(log.tasks),
    ever: Object.fromEntries(Object.entries(seen).map(([kind, values]) => [kind, [...values]])),
  };
}

function blocks(task) {
  return task.items.filter((item) => item.kind === "step").flatMap((step) => step.blocks);
}

/** Everything that was ever on the page, finished or not. */
function remember(seen, task) {
  for (const block of blocks(task)) {
    if (block.kind === "text") seen.texts.add(block.text || [...block.chunks, block.tail].join(""));
    if (block.kind === "reasoning") seen.reasoning.add(block.text);
  }
  for (const approval of Object.values(task.approvals)) seen.asked.add(approval.name);
}

function taskView(task) {
  return {
    state: taskState(task),
    error: task.error?.message ?? null,
    entries: entriesOf(task).map((entry) => entry.kind),
    open: blocks(task).filter((block) => block.open).length,
    texts: blocks(task).filter((block) => block.kind === "text").map((block) => ({ text: block.text, html: block.html })),
    reasoning: blocks(task).filter((block) => block.kind === "reasoning").map((block) => block.text),
    calls: Object.values(task.calls).map((call) => ({ name: call.name, arguments: call.arguments, raw: call.raw, state: callState(call, task) })),
  };
}
