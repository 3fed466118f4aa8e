// The chat: what is on the page is what is in `state`.
import { KEY, call, stream } from "./ask.js";

const at = (id) => document.getElementById(id);
const words = (text) => text.split(/[\s,]+/).filter(Boolean);
const joined = (...parts) => parts.filter(Boolean).join(" · ");
const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const make = (name, properties, ...children) => {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
};
const say = (error = "") => { at("error").hidden = !error; put(at("error"), error); };
const choices = (names) => names.map((name) => make("option", { value: name, textContent: name }));

const HINTS = { chat: "Message", text: "Text to continue", ids: "Token ids, such as 1 2 3 (there is no tokenizer)" };
const FRESH = { turns: [], variant: "", knobs: {}, tokens: 64, temperature: 0, seed: "", system: "", thinking: false };
const SETTINGS = {
  temperature: ({ value }) => Number(value) || 0, tokens: ({ value }) => Math.max(1, Number(value) || 64),
  seed: ({ value }) => value, system: ({ value }) => value, thinking: ({ checked }) => checked,
};
const state = restored();
let lab, running;
const mode = () => (lab.chat ? "chat" : lab.tokenizer ? "text" : "ids");
const model = () => (state.variant === lab.started ? lab.model : `${lab.model}:${state.variant}`);

// What this tab has kept.
function restored() {
  try { return { ...FRESH, ...JSON.parse(sessionStorage.getItem("lab-state")) }; } catch { return { ...FRESH }; }
}

// Keep the state, with `changes`, and make the page equal to it: the lines of the chat, and what can be done now.
function settle(changes) {
  sessionStorage.setItem("lab-state", JSON.stringify(Object.assign(state, changes)));
  const log = at("log"), { turns } = state;
  const line = () => make("li", {}, make("div", { className: "soft who" }), make("div", { className: "text" }));
  while (log.children.length > turns.length) log.lastChild.remove();
  while (log.children.length < turns.length) log.append(line());
  turns.forEach(({ role, text, variant, note }, index) => {
    const [who, said] = log.children[index].children;
    log.children[index].className = role;
    put(who, role === "user" ? "you" : joined(variant, note));
    put(said, text);
  });
  at("send").disabled = at("clear").disabled = Boolean(running);
  at("stop").disabled = !running;
  at("again").disabled = !lab || Boolean(running) || turns.length < 2;
}

function bodyOf(text) {
  const { knobs, tokens, temperature, seed, system, thinking } = state;
  const body = { model: model(), knobs, max_tokens: tokens, temperature, seed: seed === "" ? null : Number(seed) };
  body.stream_options = { include_usage: true, continuous_usage_stats: true };
  if (mode() === "ids") return { ...body, prompt: words(text).map(Number), return_token_ids: true };
  if (mode() === "text") return { ...body, prompt: text };
  const turns = [{ role: "system", text: system.trim() && system }, ...state.turns].filter((turn) => turn.text);
  const messages = turns.map(({ role, text }) => ({ role, content: text }));
  return { ...body, messages, chat_template_kwargs: { enable_thinking: thinking } };
}

// A question without an answer is no part of the chat: it goes back to the box, or the answer that it had comes back.
function undo(earlier) {
  const [question] = state.turns.splice(-2);
  if (earlier) state.turns.push(question, earlier);
  else at("say").value = [question.text, at("say").value].filter(Boolean).join("\n");
}

// earlier: the answer that the new one is to replace.
async function ask(text, earlier) {
  const turn = { role: "assistant", text: "", variant: state.variant, note: "interrupted" };
  state.turns.push({ role: "user", text }, turn);
  running = new AbortController();
  say();
  settle();
  let first;
  try {
    const path = mode() === "chat" ? "/v1/chat/completions" : "/v1/completions";
    for await (const { choices: [one], usage, timings, seed } of stream(path, bodyOf(text), running.signal)) {
      const ids = mode() === "ids" && one?.token_ids?.map((id) => `${id} `).join("");
      turn.text += ids || one?.delta?.content || one?.text || "";
      if (one?.finish_reason) turn.note = one.finish_reason === "length" ? "longest answer reached" : "";
      if (usage?.completion_tokens) {
        const made = usage.completion_tokens, ms = performance.now() - (first ??= { made, at: performance.now() }).at;
        if (ms > 50) put(at("rate"), ((1000 * (made - first.made)) / ms).toFixed(1));
        const kept = usage.prompt_tokens_details?.cached_tokens ?? 0;
        put(at("last"), `${made} tokens after ${usage.prompt_tokens}, ${kept} of them in the KV cache`);
      }
      if (timings) {
        put(at("rate"), timings.tokens_per_s.toFixed(1));
        at("last").textContent += `; first token after ${timings.first_token_s.toFixed(2)} s`;
        turn.note = joined(`${at("rate").value} tokens/s`, state.temperature && `seed ${seed}`, turn.note);
      }
      settle();
      at("log").scrollTop = at("log").scrollHeight;
    }
  } catch (error) {
    turn.note = error.name === "AbortError" ? "stopped" : "failed";
    if (turn.note === "failed") say(error.message);
    if (!turn.text) undo(earlier);
  }
  running = undefined;
  settle();
}

function choose(variant, knobs) {
  const known = lab.variants.find(({ name }) => name === variant);
  if (!known) return choose(lab.started, {});
  settle({ variant, knobs });
  at("variant").value = variant;
  put(at("idea"), known.idea);
  at("knobs").replaceChildren(...known.knobs.map(field));
}

function field({ name, help, kind, takes, choices: all, default: usual }) {
  const options = kind === "choice" ? choices(all) : [];
  const input = make(options.length ? "select" : "input", { title: takes }, ...options);
  const read = (text) => (kind === "list" ? words(text) : kind === "int" && !isNaN(text) ? Number(text) : text);
  input.value = String(state.knobs[name] ?? usual);
  input.addEventListener("change", () => settle({ knobs: { ...state.knobs, [name]: read(input.value) } }));
  return make("label", {}, `${name}: ${help} `, input);
}

const open = () => call("/lab").then(begin).catch(({ status, message }) => {
  at("unlock").hidden = status !== 401;
  put(at("about"), message);
});

function begin(answer) {
  lab = answer;
  at("unlock").hidden = true;
  at("chats").hidden = mode() !== "chat";
  put(at("about"), `${lab.model} on ${lab.device}, ${lab.positions} positions`);
  put(at("say-label"), HINTS[mode()]);
  at("variant").replaceChildren(...choices(lab.variants.map(({ name }) => name)));
  for (const name in SETTINGS) at(name)[at(name).type === "checkbox" ? "checked" : "value"] = state[name];
  if (state.turns.at(-1)?.text === "") undo(); // the page was left before the answer began
  choose(state.variant, state.knobs);
  at("say").focus();
}

const on = (id, event, act) => at(id).addEventListener(event, act);
const does = (act) => (event) => { event.preventDefault(); act(); };
const submit = does(() => {
  const text = at("say").value.trim();
  if (!lab) open();
  else if (text && !running) { at("say").value = ""; ask(text); }
});
on("ask", "submit", submit);
on("say", "keydown", (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && submit(event));
on("unlock", "submit", does(() => { sessionStorage.setItem(KEY, at("key").value); open(); }));
addEventListener("keydown", (event) => event.key === "Escape" && running?.abort());
on("stop", "click", () => running?.abort());
on("again", "click", () => { const [question, answer] = state.turns.splice(-2); ask(question.text, answer); });
on("clear", "click", () => { settle({ turns: [] }); at("say").focus(); });
on("variant", "change", () => choose(at("variant").value, {}));
for (const name in SETTINGS) on(name, "input", () => settle({ [name]: SETTINGS[name](at(name)) }));
open();
