// Requests to this server. A key, where it wants one, is kept for this tab only.
export const KEY = "lab-key";

// Browsers name a server that is gone differently; a request that was stopped is another matter.
function gone(error) {
  throw error.name === "AbortError" ? error : new Error("the server does not answer; is it still running?");
}

// An Error with OpenAI's message, and `status`, for any answer other than success.
async function request(path, body, signal) {
  const headers = { "Content-Type": "application/json" }, key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  const method = body ? "POST" : "GET";
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal }).catch(gone);
  if (answer.ok) return answer;
  const { error } = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(error?.message ?? `status ${answer.status}`), { status: answer.status });
}

export const call = async (path) => (await request(path)).json();

// The objects of a stream of server-sent events, one after another.
export async function* stream(path, body, signal) {
  const answer = await request(path, { ...body, stream: true }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", lines, part; !(part = await reader.read().catch(gone)).done;) {
    [rest, ...lines] = (rest + part.value).split("\n").reverse();
    for (const line of lines.reverse().filter((one) => one.startsWith("data: {"))) {
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}
