// The chat: what is on the page is what is in `state`.
import { call, setKey, stream } from "./ask.js";
import { save, state } from "./state.js";
import { draw } from "./stages.js";

const at = (id) => document.getElementById(id);
let lab, running, position = 0; // position: of the last token

// The kinds of a question: a chat, or without a chat template a text, or without a tokenizer token ids.
const HINTS = {
  chat: "Message",
  text: "Text to continue (this checkpoint has no chat template)",
  ids: "Token ids, such as 1 2 3 (these weights have no tokenizer)",
};
const mode = () => (lab.chat ? "chat" : lab.tokenizer ? "text" : "ids");
const model = () => (state.variant === lab.started ? lab.model : `${lab.model}:${state.variant}`);

// Fields of how to answer, and their values.
const SETTINGS = {
  temperature: ({ value }) => Number(value) || 0,
  seed: ({ value }) => value,
  tokens: ({ value }) => Math.max(1, Number(value) || 64),
  system: ({ value }) => value,
  thinking: ({ checked }) => checked,
};

function say(error) {
  at("error").hidden = !error;
  at("error").textContent = error ?? "";
}

function make(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const author = (turn) => (turn.role === "user" ? "you" : [turn.variant, turn.note].filter(Boolean).join(" · "));

function show(turn) {
  const who = make("div", { className: "who", textContent: author(turn) });
  const text = make("div", { className: "text", textContent: turn.text });
  const line = make("li", { className: turn.role }, who, text);
  at("log").append(line);
  at("log").scrollTop = at("log").scrollHeight;
  return { line, who, text };
}

// Beside the rate stands the highest one that the memory allows at this position, where it is known.
function showRate(rate) {
  const most = lab.ceiling && lab.ceiling / (lab.step_bytes + position * lab.position_bytes);
  const share = rate && most ? (100 * rate) / most : 0;
  at("rate").textContent = rate ? rate.toFixed(1) : "-";
  at("share").style.width = `${Math.min(100, share)}%`;
  at("ceiling").textContent = most
    ? `Ceiling ${most.toFixed(0)} tokens/s, by this GPU's read bandwidth at position ${position}${share ? `: ${share.toFixed(0)} % of it` : ""}`
    : `Ceiling ${lab.why}`;
}

function bodyOf(text) {
  const common = { model: model(), knobs: state.knobs, max_tokens: state.tokens, temperature: state.temperature };
  if (state.seed !== "") common.seed = Number(state.seed);
  if (mode() === "ids") return { ...common, prompt: text.split(/[\s,]+/).filter(Boolean).map(Number), return_token_ids: true };
  if (mode() === "text") return { ...common, prompt: text };
  const messages = state.turns.filter((turn) => turn.text).map(({ role, text }) => ({ role, content: text }));
  if (state.system.trim()) messages.unshift({ role: "system", content: state.system });
  return { ...common, messages, chat_template_kwargs: { enable_thinking: state.thinking } };
}

// A question without an answer is no part of the chat: it goes back to the box, or the answer that it had comes back.
function undo(earlier) {
  const [question] = forget();
  if (earlier) [question, earlier].forEach((turn) => { state.turns.push(turn); show(turn); });
  else at("say").value = [question.text, at("say").value].filter(Boolean).join("\n");
  save();
}

// Take the last question and its answer out of the chat.
function forget() {
  for (let turn = 0; turn < 2; turn++) at("log").lastChild.remove();
  return state.turns.splice(-2);
}

// earlier: the answer that the new one is to replace.
async function ask(text, earlier) {
  say();
  state.turns.push({ role: "user", text });
  show(state.turns.at(-1));
  const body = { ...bodyOf(text), stream_options: { include_usage: true, continuous_usage_stats: true } };
  const turn = { role: "assistant", text: "", variant: state.variant, note: "interrupted" };
  state.turns.push(turn);
  save();
  const { line, who, text: place } = show(turn);
  line.className += " busy";
  at("log").setAttribute("aria-busy", "true");
  running = new AbortController();
  buttons();
  let first, one = {};
  try {
    for await (const chunk of stream(mode() === "chat" ? "/v1/chat/completions" : "/v1/completions", body, running.signal)) {
      const choice = chunk.choices[0];
      turn.text += choice?.delta?.content ?? choice?.text ?? "";
      if (mode() === "ids") turn.text += (choice?.token_ids ?? []).map((id) => `${id} `).join("");
      place.textContent = turn.text;
      at("log").scrollTop = at("log").scrollHeight;
      if (choice?.finish_reason) turn.note = choice.finish_reason === "length" ? "longest answer reached" : "";
      if (chunk.usage?.completion_tokens) {
        one = chunk.usage;
        first ??= { time: performance.now(), tokens: one.completion_tokens };
        position = one.total_tokens - 1;
        const seconds = (performance.now() - first.time) / 1000;
        if (seconds > 0.05) showRate((one.completion_tokens - first.tokens) / seconds);
      }
      if (chunk.timings) finish(chunk, one, turn);
      save();
    }
  } catch (error) {
    turn.note = error.name === "AbortError" ? "stopped" : "failed";
    if (error.name !== "AbortError") say(error.message);
    if (!turn.text) undo(earlier);
  }
  running = undefined;
  who.textContent = author(turn);
  line.classList.remove("busy");
  at("log").removeAttribute("aria-busy");
  save();
  buttons();
}

function finish({ timings, seed }, usage, turn) {
  showRate(timings.tokens_per_s);
  const kept = usage.prompt_tokens_details?.cached_tokens ?? 0;
  at("last").textContent =
    `Last answer: ${usage.completion_tokens} tokens after ${usage.prompt_tokens}, ${kept} in the KV cache before; ` +
    `first token after ${timings.first_token_s.toFixed(2)} s`;
  const drawn = state.temperature ? `seed ${seed}` : "";
  turn.note = [`${timings.tokens_per_s.toFixed(1)} tokens/s`, drawn, turn.note].filter(Boolean).join(" · ");
}

function buttons() {
  at("send").disabled = at("clear").disabled = at("trace").disabled = Boolean(running);
  at("stop").disabled = !running;
  at("again").disabled = Boolean(running) || state.turns.length < 2;
}

function showVariant() {
  const chosen = lab.variants.find(({ name }) => name === state.variant);
  at("idea").textContent = chosen.idea;
  at("knobs").replaceChildren(...chosen.knobs.map((knob) => make("div", {}, ...field(knob))));
}

function field(knob) {
  const id = `knob-${knob.name}`;
  const label = make("label", { htmlFor: id, textContent: `${knob.name}: ${knob.help}` });
  const options = knob.choices.map((choice) => make("option", { value: choice, textContent: choice }));
  const input = knob.kind === "choice" ? make("select", { id }, ...options) : make("input", { id, title: knob.takes });
  input.value = String(state.knobs[knob.name] ?? knob.default);
  const read = {
    int: Number,
    choice: (text) => knob.choices.find((choice) => String(choice) === text),
    list: (text) => text.split(",").map((part) => part.trim()).filter(Boolean),
  }[knob.kind] ?? String;
  input.addEventListener("change", () => { state.knobs[knob.name] = read(input.value); save(); });
  return [label, input];
}

async function trace() {
  say();
  at("trace").disabled = true;
  at("stages").textContent = "tracing; the first time, its kernel is compiled";
  try {
    draw(at("stages"), await (await call("/lab/trace", { model: model(), knobs: state.knobs, position })).json());
  } catch (error) {
    at("stages").textContent = "";
    say(error.message);
  }
  buttons();
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
  at("variant").replaceChildren(...lab.variants.map(({ name }) => make("option", { value: name, textContent: name })));
  if (!lab.variants.some(({ name }) => name === state.variant)) Object.assign(state, { variant: lab.started, knobs: {} });
  at("variant").value = state.variant;
  for (const name in SETTINGS) at(name)[at(name).type === "checkbox" ? "checked" : "value"] = state[name];
  at("log").replaceChildren();
  state.turns.forEach(show);
  const last = state.turns.at(-1); // of a page that was left before it began
  if (last?.note === "interrupted" && !last.text) undo();
  buttons();
  showVariant();
  showRate(0);
  at("say").focus();
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = at("say").value.trim();
  if (!lab) open();
  if (!text || running || !lab) return;
  at("say").value = "";
  ask(text);
});
at("say").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("ask").requestSubmit();
  }
});
addEventListener("keydown", (event) => event.key === "Escape" && running?.abort());
at("stop").addEventListener("click", () => running?.abort());
at("again").addEventListener("click", () => {
  const [question, answer] = forget();
  ask(question.text, answer);
});
at("clear").addEventListener("click", () => {
  state.turns = [];
  save();
  buttons();
  at("log").replaceChildren();
  at("say").focus();
});
at("variant").addEventListener("change", () => {
  Object.assign(state, { variant: at("variant").value, knobs: {} });
  save();
  showVariant();
});
for (const name in SETTINGS) at(name).addEventListener("input", () => { state[name] = SETTINGS[name](at(name)); save(); });
at("trace").addEventListener("click", trace);
at("unlock").addEventListener("submit", (event) => { event.preventDefault(); setKey(at("key").value); open(); });
open();
