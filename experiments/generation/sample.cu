// Chooses the next token at random from the logits that a step has left, in place of its argmax. One block, launched
// after each step.
//
// Probabilities are integers, so that every sum of them is exact and the same in any order, on a GPU as on the host:
// only the few operations of `weight` are floating point, and those of IEEE 754. Random numbers are a function of the
// seed and the position. top_p needs no sorting: a token is drawn from all, and is taken if those before it have less
// than top_p; otherwise it and all after it are left out, and the next one is drawn (rejection).
#include "common/kernel/drafts.cuh"

using Word = unsigned long long;

struct Step : Context { // one token, at the position that the next one gets
  const float *logits;
};

struct Sample {
  struct Shared {
    Word each[block_threads + block_warps]; // a value of every thread, and of every warp
    Word drawn;
    Best best[block_warps];
  };

  static DEVICE unsigned setting(const Context &c, int at) { return c.state[state_at::sampling + at]; }
  static DEVICE float number(const Context &c, int at) { return __uint_as_float(setting(c, at)); }
  static DEVICE Word wide(const Context &c, int at) { return Word(setting(c, at + 1)) << 32 | setting(c, at); }

  // A candidate as an integer, never 0: larger for a larger logit, and of equal logits for the lower id.
  static DEVICE Word rank(float logit, int id) { return Word(ordered(logit)) << 32 | ~unsigned(id); }
  static DEVICE unsigned ordered(float logit) {
    const unsigned bits = __float_as_uint(logit + 0.0f); // -0 becomes +0
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  }

  // The logit of `id`, after the repetition penalty.
  static DEVICE float logit(const Step &c, int id) {
    const float x = c.logits[id], penalty = number(c, setting_at::penalty);
    if (penalty == 1.0f || __float_as_uint(seen(c)[id]) != setting(c, setting_at::mark)) return x;
    return x > 0.0f ? x / penalty : x * penalty;
  }
  static DEVICE float *seen(const Context &c) { return c.scratch + scratch_at::seen; }

  // 2^40 times the probability of a logit relative to that of the largest one: 2^((logit - largest) * scale).
  static DEVICE Word weight(float logit, float largest, float scale) {
    const float exponent = fmaxf((logit - largest) * scale, -64.0f), whole = ceilf(exponent);
    const float x = exponent - whole + 0.5f; // -0.5 < x <= 0.5; below, 2^(x - 0.5) by its series, within 2e-7
    float power = 1.540353039e-4f;
    power = power * x + 1.333355815e-3f;
    power = power * x + 9.618129107e-3f;
    power = power * x + 5.550410866e-2f;
    power = power * x + 2.402265070e-1f;
    power = power * x + 6.931471806e-1f;
    power = power * x + 1.0f;
    const int shift = -int(whole);
    return shift > 40 ? 0 : Word(power * 0.7071067812f * 1099511627776.0f) >> shift;
  }

  // `mine` of all threads joined into one. Afterwards `each` has them, and joined by warp.
  template <class Join> static DEVICE Word joined(Shared &s, Word mine, Join join) {
    s.each[int(threadIdx.x)] = mine;
    __syncthreads();
    if (int(threadIdx.x) < block_warps) {
      Word all = s.each[32 * int(threadIdx.x)];
      for (int i = 1; i < 32; ++i) all = join(all, s.each[32 * int(threadIdx.x) + i]);
      s.each[block_threads + int(threadIdx.x)] = all;
    }
    __syncthreads();
    Word all = s.each[block_threads];
    for (int w = 1; w < block_warps; ++w) all = join(all, s.each[block_threads + w]);
    __syncthreads();
    return all;
  }
  static DEVICE Word sum(Shared &s, Word mine) {
    return joined(s, mine, [](Word a, Word b) { return a + b; });
  }

  // SplitMix64 as a function of a counter. Steele, Lea and Flood 2014 (doi:10.1145/2714064.2660195).
  static DEVICE Word random(Word seed, Word counter) { return mixed(mixed(seed) + counter * 0x9e3779b97f4a7c15u); }
  static DEVICE Word mixed(Word z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }

  // The smallest ordered logit among the largest `top_k`; ties with the last of them are among them.
  static DEVICE unsigned smallest(const Step &c, Shared &s, Word top_k, unsigned largest) {
    unsigned smallest = 0;
    for (unsigned bit = 1u << 31; bit != 0; bit >>= 1) {
      const unsigned tried = smallest | bit;
      if (tried > largest) continue;
      Word mine = 0;
      for (int id = threadIdx.x; id < model::vocab; id += block_threads) mine += ordered(logit(c, id)) >= tried;
      const Word found = sum(s, mine);
      if (found >= top_k) smallest = tried;
      if (found == top_k) break;
    }
    return smallest;
  }

  // The id that follows the ids before c.position; ~0 if there are no logits. Called by all threads of the block.
  static DEVICE unsigned choose(const Step &c) {
    Shared &s = shared<Sample>(c);
    if (number(c, setting_at::penalty) != 1.0f) {
      unsigned *marks = reinterpret_cast<unsigned *>(seen(c)); // two threads may have the same id
      for (int i = threadIdx.x; i < c.position; i += block_threads)
        store_release(marks + c.state[state_at::ids + i], setting(c, setting_at::mark));
      __syncthreads();
    }
    Word mine = 0;
    for (int id = threadIdx.x; id < model::vocab; id += block_threads) {
      const float x = logit(c, id);
      if (x == x && rank(x, id) > mine) mine = rank(x, id);
    }
    const Word best = joined(s, mine, [](Word a, Word b) { return a > b ? a : b; });
    const float scale = number(c, setting_at::scale);
    if (best == 0 || scale == 0.0f) return ~unsigned(best);

    const float largest = logit(c, int(~unsigned(best)));
    const unsigned top_k = setting(c, setting_at::top_k);
    const unsigned least = top_k == 0 ? 0 : smallest(c, s, top_k, unsigned(best >> 32));
    Word below = 0; // only candidates above this rank are left
    // The weight of a candidate, 0 for one that is none.
    const auto of = [&](int id, Word above) {
      const float x = logit(c, id);
      return ordered(x) >= least && rank(x, id) > above ? weight(x, largest, scale) : 0;
    };
    const auto all = [&](Word above) {
      Word mine = 0;
      for (int id = threadIdx.x; id < model::vocab; id += block_threads) mine += of(id, above);
      return mine;
    };
    mine = all(below);
    Word total = sum(s, mine);
    const Word top_p = wide(c, setting_at::top_p), limit = top_p == ~Word(0) ? total : __umul64hi(top_p, total) + 1;
    for (unsigned turn = 0;; ++turn) {
      const Word drawn = __umul64hi(random(wide(c, setting_at::seed), Word(c.position) << 20 | turn), total);
      find(s, drawn, mine, [&](int id) { return of(id, below); }, [&](int id) { return rank(logit(c, id), id); });
      __syncthreads();
      below = s.drawn;
      mine = all(below);
      total = sum(s, mine); // weights before the drawn one
      if (total < limit) return ~unsigned(below);
    }
  }

  // Stores the rank of the candidate in which the sum of weights reaches `drawn`: by thread, and of each thread in the
  // order of its ids. `each` has the threads' sums.
  template <class Weight, class Rank>
  static DEVICE void find(Shared &s, Word drawn, Word mine, Weight weight, Rank rank) {
    const int thread = threadIdx.x;
    for (int w = 0; w < thread / 32; ++w) {
      if (drawn < s.each[block_threads + w]) return;
      drawn -= s.each[block_threads + w];
    }
    for (int i = thread / 32 * 32; i < thread; ++i) {
      if (drawn < s.each[i]) return;
      drawn -= s.each[i];
    }
    if (drawn >= mine) return;
    for (int id = thread; id < model::vocab; id += block_threads) {
      const Word here = weight(id);
      if (drawn < here) {
        s.drawn = rank(id);
        return;
      }
      drawn -= here;
    }
  }
};

// The body of the kernel. The step has already advanced the position, and has written its own choices, the last of them
// there. Each is replaced by a token drawn from its logits, up to the first that is another than the draft behind it:
// so the ids are those of drawing after each token.
template <class Kernel> DEVICE void run(const Buffers &b, void *memory, int) {
  unsigned *ids = b.state + state_at::ids;
  const int last = b.state[state_at::position], first = last - int(b.state[state_at::accepted]);
  const int given = b.state[state_at::prompt_length];
  for (int at = first; at <= last; ++at) {
    if (at < given) continue; // the prompt gives this id
    const Step c{{b, memory, at, 0}, b.scratch + Tap<Stage::lm_head>::at + (at - first) * scratch_at::step_size};
    const unsigned draft = ids[at], token = Kernel::choose(c);
    if (token == draft && at < last) continue;
    if (threadIdx.x == 0) {
      b.state[state_at::token] = ids[at] = token;
      b.state[state_at::position] = at;
      b.state[state_at::accepted] = at - first;
    }
    if (tokens_per_step > 1) {
      __syncthreads();
      ::draft<Kernel>(c, tokens_per_step - 1);
    }
    return;
  }
}
