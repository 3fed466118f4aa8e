// Requests to this server. A key, where it wants one, is kept for this tab only.
const KEY = "lab-key";
export const setKey = (key) => sessionStorage.setItem(KEY, key);

// The browser's own word for a server that is gone differs; a request that was stopped is no such case.
function gone(error) {
  throw error.name === "AbortError" ? error : new Error("the server does not answer; is it still running?");
}

// The answer to one request; an Error with OpenAI's message, and `status`, for any other than success.
export async function call(path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  const request = body ? { method: "POST", headers, body: JSON.stringify(body), signal } : { headers, signal };
  const answer = await fetch(path, request).catch(gone);
  if (answer.ok) return answer;
  const reason = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(reason.error?.message ?? `status ${answer.status}`), { status: answer.status });
}

// The objects of a stream of server-sent events, one after another.
export async function* stream(path, body, signal) {
  const answer = await call(path, { ...body, stream: true }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(gone);
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}
