// The chat: what is on the page is what is in `state`.
import { call, setKey, stream } from "./ask.js";
import { draw } from "./stages.js";

const at = (id) => document.getElementById(id);
const make = (name, properties) => Object.assign(document.createElement(name), properties);
const joined = (...parts) => parts.filter(Boolean).join(" · ");
const HINTS = {
  chat: "Message",
  text: "Text to continue (this checkpoint has no chat template)",
  ids: "Token ids, such as 1 2 3 (these weights have no tokenizer)",
};
const FRESH = { turns: [], variant: "", knobs: {}, tokens: 64, temperature: 0, seed: "", system: "", thinking: false };
const SETTINGS = {
  temperature: ({ value }) => Number(value) || 0,
  tokens: ({ value }) => Math.max(1, Number(value) || 64),
  seed: ({ value }) => value, system: ({ value }) => value, thinking: ({ checked }) => checked,
};
const state = restored();
let lab, running, position = 0; // position: of the last token

const mode = () => (lab.chat ? "chat" : lab.tokenizer ? "text" : "ids");
const model = () => (state.variant === lab.started ? lab.model : `${lab.model}:${state.variant}`);
const save = () => sessionStorage.setItem("lab-state", JSON.stringify(state));
const say = (error) => { at("error").hidden = !error; at("error").textContent = error ?? ""; };

// What this tab has kept; another version of this page, or a hand, may have left another form, which is not taken.
function restored() {
  let kept;
  try { kept = JSON.parse(sessionStorage.getItem("lab-state")); } catch { /* no JSON */ }
  const form = (value) => Object.prototype.toString.call(value);
  const isTurn = (turn) => ["user", "assistant"].includes(turn?.role) && typeof turn.text === "string";
  const sound = ([name, usual]) => [name, form(kept?.[name]) === form(usual) ? kept[name] : usual];
  const found = Object.fromEntries(Object.entries(FRESH).map(sound));
  return found.turns.every(isTurn) ? found : { ...found, turns: [] };
}

// A line for a turn; returns a function that shows what the turn is by now.
function show(turn) {
  const line = make("li", { className: turn.role });
  const who = make("div", { className: "soft who" }), text = make("div", { className: "text" });
  line.append(who, text);
  at("log").append(line);
  const update = () => {
    who.textContent = turn.role === "user" ? "you" : joined(turn.variant, turn.note);
    text.textContent = turn.text;
    at("log").scrollTop = at("log").scrollHeight;
  };
  update();
  return update;
}

// Beside the rate stands the highest one that the memory allows at this position, where it is known.
function showRate(rate) {
  const most = lab.ceiling && lab.ceiling / (lab.step_bytes + position * lab.position_bytes);
  const share = rate && most ? `: ${((100 * rate) / most).toFixed(0)} % of it` : "";
  const known = most && `${most.toFixed(0)} tokens/s, by this GPU's read bandwidth at position ${position}${share}`;
  at("rate").textContent = rate ? rate.toFixed(1) : "-";
  at("ceiling").textContent = `Ceiling ${known || lab.why}`;
}

function bodyOf(text) {
  const { knobs, tokens, temperature, seed, system, thinking } = state;
  const body = { model: model(), knobs, max_tokens: tokens, temperature, seed: seed === "" ? null : Number(seed) };
  body.stream_options = { include_usage: true, continuous_usage_stats: true };
  if (mode() === "ids") return { ...body, prompt: text.split(/[\s,]+/).filter(Boolean).map(Number), return_token_ids: true };
  if (mode() === "text") return { ...body, prompt: text };
  const messages = state.turns.filter((turn) => turn.text).map(({ role, text }) => ({ role, content: text }));
  if (system.trim()) messages.unshift({ role: "system", content: system });
  return { ...body, messages, chat_template_kwargs: { enable_thinking: thinking } };
}

// Take the last question and its answer out of the chat.
function forget() {
  for (let turn = 0; turn < 2; turn++) at("log").lastChild.remove();
  return state.turns.splice(-2);
}

// A question without an answer is no part of the chat: it goes back to the box, or the answer that it had comes back.
function undo(earlier) {
  const [question] = forget();
  if (earlier) [question, earlier].forEach((turn) => { state.turns.push(turn); show(turn); });
  else at("say").value = [question.text, at("say").value].filter(Boolean).join("\n");
}

// earlier: the answer that the new one is to replace.
async function ask(text, earlier) {
  const question = { role: "user", text };
  const turn = { role: "assistant", text: "", variant: state.variant, note: "interrupted" };
  state.turns.push(question, turn);
  show(question);
  const update = show(turn), path = mode() === "chat" ? "/v1/chat/completions" : "/v1/completions";
  running = new AbortController();
  say();
  settle();
  let first, usage;
  try {
    for await (const chunk of stream(path, bodyOf(text), running.signal)) {
      const choice = chunk.choices[0];
      turn.text += choice?.delta?.content ?? choice?.text ?? "";
      if (mode() === "ids") turn.text += (choice?.token_ids ?? []).map((id) => `${id} `).join("");
      if (choice?.finish_reason) turn.note = choice.finish_reason === "length" ? "longest answer reached" : "";
      if (chunk.usage?.completion_tokens) {
        usage = chunk.usage;
        first ??= { time: performance.now(), tokens: usage.completion_tokens };
        position = usage.total_tokens - 1;
        const seconds = (performance.now() - first.time) / 1000;
        if (seconds > 0.05) showRate((usage.completion_tokens - first.tokens) / seconds);
      }
      if (chunk.timings) finish(chunk, usage, turn);
      update();
      save();
    }
  } catch (error) {
    turn.note = error.name === "AbortError" ? "stopped" : "failed";
    if (turn.note === "failed") say(error.message);
    if (!turn.text) undo(earlier);
  }
  running = undefined;
  update();
  settle();
}

function finish({ timings, seed }, usage, turn) {
  const kept = usage.prompt_tokens_details?.cached_tokens ?? 0, rate = timings.tokens_per_s;
  showRate(rate);
  at("last").textContent = `Last answer: ${usage.completion_tokens} tokens after ${usage.prompt_tokens}, ` +
    `${kept} in the KV cache before; first token after ${timings.first_token_s.toFixed(2)} s`;
  turn.note = joined(`${rate.toFixed(1)} tokens/s`, state.temperature && `seed ${seed}`, turn.note);
}

// Keep the state, and allow what can be done now.
function settle() {
  save();
  at("send").disabled = at("clear").disabled = at("trace").disabled = Boolean(running);
  at("stop").disabled = !running;
  at("again").disabled = Boolean(running) || state.turns.length < 2;
}

const choices = (names) => names.map((name) => make("option", { value: name, textContent: name }));

function showVariant() {
  const { idea, knobs } = lab.variants.find(({ name }) => name === state.variant);
  at("idea").textContent = idea;
  at("knobs").replaceChildren(...knobs.map(field));
}

function field({ name, help, kind, takes, choices: all, default: usual }) {
  const label = make("label", { textContent: `${name}: ${help}` });
  const input = make(kind === "choice" ? "select" : "input", { title: takes });
  if (kind === "choice") input.append(...choices(all));
  input.value = String(state.knobs[name] ?? usual);
  const read = {
    int: Number,
    choice: (text) => all.find((choice) => String(choice) === text),
    list: (text) => text.split(",").map((part) => part.trim()).filter(Boolean),
  }[kind] ?? String;
  input.addEventListener("change", () => { state.knobs[name] = read(input.value); save(); });
  label.append(input);
  return label;
}

async function trace() {
  say();
  at("stages").textContent = "tracing; the first time, its kernel is compiled";
  try {
    draw(at("stages"), await (await call("/lab/trace", { model: model(), knobs: state.knobs, position })).json());
  } catch (error) {
    at("stages").textContent = "";
    say(error.message);
  }
}

async function open() {
  try {
    lab = await (await call("/lab")).json();
  } catch (error) {
    at("unlock").hidden = error.status !== 401;
    at("about").textContent = error.message;
    return;
  }
  at("unlock").hidden = true;
  at("about").textContent = `${lab.model} on ${lab.device}, ${lab.positions} positions`;
  at("say-label").textContent = HINTS[mode()];
  at("chats").hidden = mode() !== "chat";
  at("variant").replaceChildren(...choices(lab.variants.map(({ name }) => name)));
  if (!lab.variants.some(({ name }) => name === state.variant)) Object.assign(state, { variant: lab.started, knobs: {} });
  at("variant").value = state.variant;
  for (const name in SETTINGS) at(name)[at(name).type === "checkbox" ? "checked" : "value"] = state[name];
  at("log").replaceChildren();
  state.turns.forEach(show);
  const last = state.turns.at(-1);
  if (last?.note === "interrupted" && !last.text) undo(); // the page was left before the answer began
  settle();
  showVariant();
  showRate(0);
  at("say").focus();
}

function submit() {
  const text = at("say").value.trim();
  if (!lab) open();
  if (!text || running || !lab) return;
  at("say").value = "";
  ask(text);
}

const change = (changes, then = () => {}) => { Object.assign(state, changes); settle(); then(); };
const on = (id, event, act) => at(id).addEventListener(event, act);
on("ask", "submit", (event) => { event.preventDefault(); submit(); });
on("unlock", "submit", (event) => { event.preventDefault(); setKey(at("key").value); open(); });
on("say", "keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
});
addEventListener("keydown", (event) => event.key === "Escape" && running?.abort());
on("stop", "click", () => running?.abort());
on("again", "click", () => { const [question, answer] = forget(); ask(question.text, answer); });
on("clear", "click", () => { at("log").replaceChildren(); change({ turns: [] }); at("say").focus(); });
on("trace", "click", trace);
on("variant", "change", () => change({ variant: at("variant").value, knobs: {} }, showVariant));
for (const name in SETTINGS) on(name, "input", () => change({ [name]: SETTINGS[name](at(name)) }));
open();
