// Idea        tensor cores multiply queries by keys: the queries of a KV head as bf16 terms, three to an element, by
//             eight positions at once
// Hypothesis  nearly half of the instructions for a tile of the cache make scores: 8 mma and 4 shuffles replace 64
//             multiply-adds, 32 conversions and 32 shuffles; a warp has one maximum of a head, not one for each lane
// Overrides   nothing
// Run         python -m experiments variant=tensor_scores
#include "common/kernel/tensor_heads.cuh"

template <class Base> struct TensorScores : Base {
  using Self = typename Base::Self;

  struct Shared : Base::Shared {
    QueryTerms heads;
  };

  // Gives `stream_kv` its queries.
  struct Lanes : TensorQueries {
    DEVICE explicit Lanes(const Context &c) : TensorQueries(shared<Self>(c).heads) {}
  };
};
