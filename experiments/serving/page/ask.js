// Requests to this server. A key, where it wants one, is kept for this tab only.
const KEY = "lab-key";
export const setKey = (key) => sessionStorage.setItem(KEY, key);

// Browsers name a server that is gone differently; a request that was stopped is another matter.
function gone(error) {
  throw error.name === "AbortError" ? error : new Error("the server does not answer; is it still running?");
}

// The answer to one request; an Error with OpenAI's message, and `status`, for any other than success.
export async function call(path, body, signal) {
  const headers = { "Content-Type": "application/json" }, key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  const method = body ? "POST" : "GET";
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal }).catch(gone);
  if (answer.ok) return answer;
  const reason = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(reason.error?.message ?? `status ${answer.status}`), { status: answer.status });
}

// The objects of a stream of server-sent events, one after another.
export async function* stream(path, body, signal) {
  const answer = await call(path, { ...body, stream: true }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "";;) {
    const { value, done } = await reader.read().catch(gone);
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.filter((one) => one.startsWith("data: ") && one !== "data: [DONE]")) {
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}
