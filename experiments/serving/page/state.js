// State of the page, kept for as long as the tab lives: the conversation and the settings.
const STATE = "lab-state";
const empty = { turns: [], variant: "", knobs: {}, tokens: 64, temperature: 0, seed: "", system: "", thinking: false };
const isTurn = (turn) => ["user", "assistant"].includes(turn?.role) && typeof turn.text === "string";
const alike = (one, other) => typeof one === typeof other && one !== null && Array.isArray(one) === Array.isArray(other);

// Another version of this page, or a hand, may have left something else there: only what has the form of `empty` is taken.
function restored() {
  let kept;
  try {
    kept = JSON.parse(sessionStorage.getItem(STATE));
  } catch { /* no JSON */ }
  const state = structuredClone(empty);
  for (const name in state) if (alike(kept?.[name], state[name])) state[name] = kept[name];
  if (!state.turns.every(isTurn)) state.turns = [];
  return state;
}

export const state = restored();
export const save = () => sessionStorage.setItem(STATE, JSON.stringify(state));
