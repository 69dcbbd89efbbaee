/* The two parts of a transformer that take most of its time, for processors with AVX2: products with a matrix of weights,
 * and attention within each of several texts that lie end to end.
 *
 * Both are made of one tile: STRIP rows times a panel of PANEL columns, with all sums in registers. Weights come as
 * panels: PANEL columns side by side, one step of the sum after the other, so that a panel is read in the order of the
 * memory. DEPTH steps of a panel and of a strip fit into the first cache, BLOCK bytes of rows into the second one.
 *
 * Everything is single precision, as in the libraries that it stands in for; sums run in another order. Plain C99 with
 * GCC/Clang vector types. One copy, for AVX2 (which processors with AVX-512 run too); elsewhere the library is empty.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 8, VECTORS = 2, PANEL = LANES * VECTORS, STRIP = 6, DEPTH = 384, BLOCK = 384 * 1024 };
enum { QUERIES = 4 * STRIP }; /* whose scores are kept at a time */

typedef float vec __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef int32_t whole __attribute__((vector_size(LANES * sizeof(int32_t)), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

/* out = rows W + bias: rows (count x depth), out (count x columns), W as panels; columns is a multiple of PANEL. */
struct product {
    const float *rows, *panels, *bias;
    int64_t count, depth, columns;
    float *out;
};

/* Queries, keys and values begin at `of[0 .. 2]`; token_step and head_step say how many floats further the next token
 * and the next head begin. out is (tokens x heads x width), width a multiple of PANEL. */
struct attention {
    const float *of[3];
    int64_t token_step[3], head_step[3];
    const int64_t *lengths; /* of the texts, in tokens */
    int64_t texts, heads, width;
    double scale;   /* of the scores */
    float *scratch; /* for its size see packed.py */
    float *out;
};

#if defined(__x86_64__)

/* out = start + rows panel, over `depth` steps, for up to STRIP rows; one beyond `count` repeats the last and is
 * forgotten. start_step is 0 where all rows start from the same numbers. */
INLINE void tile(const float *rows, int64_t step, int64_t count, int64_t depth, const float *panel, const float *start,
                 int64_t start_step, float *out, int64_t out_step) {
    vec sum[STRIP][VECTORS];
    const float *row[STRIP];
    for (int r = 0; r < STRIP; r++) {
        int64_t real = r < count ? r : count - 1;
        row[r] = rows + real * step;
        for (int v = 0; v < VECTORS; v++) sum[r][v] = *(const vec *)(start + real * start_step + v * LANES);
    }
    for (int64_t t = 0; t < depth; t++) {
        vec column[VECTORS];
        for (int v = 0; v < VECTORS; v++) column[v] = *(const vec *)(panel + t * PANEL + v * LANES);
        for (int r = 0; r < STRIP; r++)
            for (int v = 0; v < VECTORS; v++) sum[r][v] += row[r][t] * column[v];
    }
    for (int r = 0; r < STRIP; r++)
        if (r < count)
            for (int v = 0; v < VECTORS; v++) *(vec *)(out + r * out_step + v * LANES) = sum[r][v];
}

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* out = start + rows panel for any number of rows and steps. */
INLINE void column_of_tiles(const float *rows, int64_t step, int64_t count, int64_t depth, const float *panel,
                            const float *start, float *out, int64_t out_step) {
    for (int64_t t = 0; t < depth; t += DEPTH)
        for (int64_t r = 0; r < count; r += STRIP)
            tile(rows + r * step + t, step, count - r, least(depth - t, DEPTH), panel + t * PANEL,
                 t ? out + r * out_step : start, t ? out_step : 0, out + r * out_step, out_step);
}

/* eˣ for x <= 0, to the last two bits; at least e⁻⁸⁷. NaN stays NaN. */
INLINE vec exponential(vec x) {
    const vec lowest = (vec){0} - 87.0f, rounder = (vec){0} + 0x1.8p23f;
    whole below = x < lowest;
    x = (vec)((below & (whole)lowest) | (~below & (whole)x));
    vec shifted = x * 0x1.715476p0f + rounder, n = shifted - rounder; /* x = n ln 2 + r */
    whole power = ((whole)shifted - (whole)rounder + 127) << 23;
    vec r = x - n * 0x1.62e4p-1f - n * 0x1.7f7d1cp-20f;
    vec p = 1.3981999507e-3f * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (vec)power;
}

/* A row of scores becomes e^(score - the largest); gives one over their sum. Scores after `count` count for nothing. */
INLINE float weigh(float *scores, int64_t count, int64_t padded) {
    for (int64_t t = count; t < padded; t++) scores[t] = -INFINITY;
    vec top = *(const vec *)scores, sum = {0};
    for (int64_t t = LANES; t < padded; t += LANES) {
        vec next = *(const vec *)(scores + t);
        whole higher = next > top;
        top = (vec)((higher & (whole)next) | (~higher & (whole)top));
    }
    float highest = top[0], total = 0;
    for (int lane = 1; lane < LANES; lane++) highest = top[lane] > highest ? top[lane] : highest;
    for (int64_t t = 0; t < padded; t += LANES) {
        vec weight = exponential(*(const vec *)(scores + t) - highest);
        *(vec *)(scores + t) = weight;
        sum += weight;
    }
    for (int lane = 0; lane < LANES; lane++) total += sum[lane];
    return 1 / total;
}

/* One head of one text: n tokens, the first at place `first`. */
INLINE void one_head(const struct attention *a, int64_t first, int64_t n, int64_t head) {
    static const float zeros[PANEL];
    const float *begin[3];
    for (int i = 0; i < 3; i++) begin[i] = a->of[i] + first * a->token_step[i] + head * a->head_step[i];
    int64_t width = a->width, padded = (n + PANEL - 1) / PANEL * PANEL, out_step = a->heads * width;
    float *keys = a->scratch, *values = keys + padded * width, *scores = values + padded * width;
    float *out = a->out + first * out_step + head * width, scale = (float)a->scale;
    for (int64_t t = 0; t < n; t++) { /* a panel of keys: PANEL of them side by side */
        const float *key = begin[1] + t * a->token_step[1], *value = begin[2] + t * a->token_step[2];
        float *place = keys + t / PANEL * PANEL * width + t % PANEL;
        for (int i = 0; i < 3; i++) /* the next head */
            for (int64_t d = 0; d < width; d += PANEL)
                __builtin_prefetch(begin[i] + t * a->token_step[i] + a->head_step[i] + d);
        for (int64_t d = 0; d < width; d++) place[d * PANEL] = key[d] * scale;
        for (int64_t d = 0; d < width; d += PANEL) memcpy(values + d * n + t * PANEL, value + d, PANEL * sizeof(float));
    }
    for (int64_t t = n; t < padded; t++)
        for (int64_t d = 0; d < width; d++) keys[t / PANEL * PANEL * width + d * PANEL + t % PANEL] = 0;
    for (int64_t q = 0; q < n; q += QUERIES) {
        int64_t rows = least(n - q, QUERIES);
        float share[QUERIES];
        for (int64_t t = 0; t < padded; t += PANEL)
            column_of_tiles(begin[0] + q * a->token_step[0], a->token_step[0], rows, width, keys + t * width, zeros,
                            scores + t, padded);
        for (int64_t r = 0; r < rows; r++) share[r] = weigh(scores + r * padded, n, padded);
        for (int64_t d = 0; d < width; d += PANEL)
            column_of_tiles(scores, padded, rows, n, values + d * n, zeros, out + q * out_step + d, out_step);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t d = 0; d < width; d++) out[(q + r) * out_step + d] *= share[r];
    }
}

#define AVX2 __attribute__((target("avx2,fma")))

AVX2 void poolscope_product(const struct product *p) {
    int64_t block = BLOCK / (int64_t)sizeof(float) / p->depth / STRIP * STRIP;
    block = block < STRIP ? STRIP : block;
    for (int64_t r = 0; r < p->count; r += block)
        for (int64_t c = 0; c < p->columns; c += PANEL)
            column_of_tiles(p->rows + r * p->depth, p->depth, least(p->count - r, block), p->depth,
                            p->panels + c * p->depth, p->bias + c, p->out + r * p->columns + c, p->columns);
}

AVX2 void poolscope_attention(const struct attention *a) {
    for (int64_t text = 0, first = 0; text < a->texts; first += a->lengths[text++])
        for (int64_t head = 0; head < a->heads; head++) one_head(a, first, a->lengths[text], head);
}

#endif

/* For the caller to see that this library is the one that it was written for. */
int64_t poolscope_product_bytes(void) { return (int64_t)sizeof(struct product); }
int64_t poolscope_attention_bytes(void) { return (int64_t)sizeof(struct attention); }

/* Can this CPU run them? */
int64_t poolscope_ready(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 0;
#endif
}
