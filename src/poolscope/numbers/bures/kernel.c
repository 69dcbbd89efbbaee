/* Nuclear norms of many small cross products at once: the inner loop of all-pairs Bures-Wasserstein.
 *
 * Input is a block of C = A Bᵀ. A holds the rows of the left texts one text after the other. B holds the right
 * texts in groups of LANES, interleaved: row (t, lane) of a group is row t of its lane-th text, zero where that text
 * has no row t. So C[r][t][lane] arrives from the matrix product with the lanes side by side, and every step below
 * treats many pairs with one vector instruction, with no shuffle and no branch. Where few pairs of a block are asked for,
 * they come as a list instead, by rising size: LANES of them at a time are brought into that order first.
 *
 * For one left text (m rows) against one group (n rows, padded), where the two are of similar length:
 *   1. bidiagonal:  Householder reduction of C to two diagonals B, in single precision, all LANES at once. Orthogonal
 *                   steps keep the singular values as exact as the product itself, so float is enough here;
 *   2. root_trace:  ‖C‖_* = tr √(B Bᵀ), B Bᵀ being tridiagonal, by the rational function √x ≈ Σ_k w_k x/(x + p_k), whose
 *                   value on a tridiagonal matrix is a short recurrence: no eigenvalues, no iteration.
 * Where one is much longer than the other, the smaller side is worth squaring, in double precision, LANES/2 at a time:
 *   1. gram:        G = C Cᵀ, on the smaller of the two sides;
 *   2. tridiagonal: Householder reduction of G, keeping only the diagonal d and the squared off-diagonal e2;
 *   3. root_trace:  tr √G, as above.
 * Padding rows are zero and add zero eigenvalues, which add nothing. All singular values of C must be at most 1
 * (the caller scales the factors); poles and weights are made for that range.
 *
 * Two variants. Where all texts share one large direction, the caller removes it from the factors, and gives it as a
 * `corner`: a large number that belongs to C[0][0]. It is split off before the Gram matrix could drown the rest in its
 * square. And with a `ridge`, the trace is that of the published code, which adds eps before each square root. Both go
 * by the Gram matrix.
 *
 * Plain C99 with GCC/Clang vector types, so it compiles for any CPU. For x86-64 there are three copies: for every CPU,
 * for AVX2 (v3) and for AVX-512 (v4); poolscope_level() tells which the CPU at hand can run, and the caller chooses.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Columns are converted to double precision CHUNK at a time, so that the rows of a chunk stay in the cache. A tile of
 * 4 x 3 sums, with 3 + 1 factors, fills the 16 vector registers of AVX2. */
enum { LANES = 8, HALF = LANES / 2, CHUNK = 64, TILE_ROWS = 4, TILE_COLUMNS = 3, POLE_UNROLL = 8, SPLITS = 8 };
enum side { SMALLER, LEFT, RIGHT };

typedef double vec __attribute__((vector_size(HALF * sizeof(double))));
typedef int64_t mask __attribute__((vector_size(HALF * sizeof(int64_t))));
typedef float wide __attribute__((vector_size(LANES * sizeof(float)), may_alias)); /* the scratch holds both kinds */
typedef int32_t wide_mask __attribute__((vector_size(LANES * sizeof(int32_t))));

#define INLINE static inline __attribute__((always_inline))

/* One pair of a list: where its C begins in the block, and its size. */
struct pair {
    int64_t first, rows, columns;
};

/* What the caller passes: one block, and where its norms go. */
struct block {
    const float *products;      /* C, `stride` floats a row */
    int64_t stride;
    const int64_t *left;        /* lefts + 1 row offsets: left text i is rows left[i] .. left[i+1] */
    int64_t lefts;
    const int64_t *right;       /* groups + 1 column offsets, in units of LANES columns */
    int64_t groups;
    const double *pole, *weight; /* `poles` of them, a multiple of POLE_UNROLL, rising */
    int64_t poles;
    const double *left_corners, *right_corners; /* one a text; their product belongs to C[0][0]. NULL: no corners */
    int64_t side;               /* of the Gram matrix: an enum side; SMALLER unless there is a ridge */
    const double *ridge;        /* squared norms of the rows of that side, in the order of C. NULL: no ridge */
    double eps;
    const double *left_scales, *right_scales; /* with a ridge: what the factors were divided by, one a text */
    double *scratch;            /* aligned to a vector; for its size see native.py */
    double *norms, *squares;    /* out, lefts x (groups * LANES): ‖C‖_* (or the published trace) and ‖C‖_F² */
    const unsigned char *wanted; /* of the same shape: zero for pairs that may be left out. NULL: all are wanted */
    const struct pair *pairs;   /* groups * LANES of them, with lefts = 1, instead of left and right; or NULL */
    float *gathered;            /* with pairs: room for LANES of the largest, aligned to a vector */
};

INLINE vec load(const float *address) {
    vec doubles = {0};
    for (int lane = 0; lane < HALF; lane++) doubles[lane] = address[lane];
    return doubles;
}

INLINE vec load_double(const double *address) {
    vec four;
    memcpy(&four, address, sizeof four);
    return four;
}

INLINE vec keep_where(mask condition, vec value) { return (vec)(condition & (mask)value); }

INLINE vec square_root(vec x) {
    for (int lane = 0; lane < HALF; lane++) x[lane] = sqrt(x[lane]);
    return x;
}

/* |magnitude| with the sign of `sign`. */
INLINE vec with_sign(vec magnitude, vec sign) {
    const mask bit = (mask){0} + INT64_MIN;
    return (vec)(((mask)magnitude & ~bit) | ((mask)sign & bit));
}

/* Packed lower triangle: entry (j, k), k <= j. */
INLINE size_t at(size_t j, size_t k) { return j * (j + 1) / 2 + k; }

/* Rows 0..m, columns first..first+n of C as doubles, `step` vectors a row; read in the order of the memory. */
INLINE void convert(const float *c, size_t row_step, size_t column_step, size_t m, size_t n, size_t step, vec *rows) {
    if (row_step > column_step)
        for (size_t j = 0; j < m; j++)
            for (size_t t = 0; t < n; t++) rows[j * step + t] = load(c + j * row_step + t * column_step);
    else
        for (size_t t = 0; t < n; t++)
            for (size_t j = 0; j < m; j++) rows[j * step + t] = load(c + j * row_step + t * column_step);
}

/* One register tile of G: rows j.., columns k.., plus the sum over n columns. A tile that reaches over the end repeats
 * the last row and forgets the result. */
INLINE void gram_tile(const vec *rows, size_t step, size_t m, size_t n, size_t j, size_t k, vec *G) {
    vec sum[TILE_ROWS][TILE_COLUMNS] = {{{0}}};
    const vec *left[TILE_ROWS], *right[TILE_COLUMNS];
    for (size_t p = 0; p < TILE_ROWS; p++) left[p] = rows + (j + p < m ? j + p : m - 1) * step;
    for (size_t q = 0; q < TILE_COLUMNS; q++) right[q] = rows + (k + q < m ? k + q : m - 1) * step;
    for (size_t t = 0; t < n; t++) {
        vec b[TILE_COLUMNS];
        for (int q = 0; q < TILE_COLUMNS; q++) b[q] = right[q][t];
        for (int p = 0; p < TILE_ROWS; p++) {
            vec a = left[p][t];
            for (int q = 0; q < TILE_COLUMNS; q++) sum[p][q] += a * b[q];
        }
    }
    for (size_t p = 0; p < TILE_ROWS && j + p < m; p++)
        for (size_t q = 0; q < TILE_COLUMNS && k + q <= j + p; q++) G[at(j + p, k + q)] += sum[p][q];
}

/* G += (rows)(rows)ᵀ over n columns. */
INLINE void add_gram(const vec *rows, size_t step, size_t m, size_t n, vec *G) {
    for (size_t j = 0; j < m; j += TILE_ROWS)
        for (size_t k = 0; k < m && k < j + TILE_ROWS; k += TILE_COLUMNS) gram_tile(rows, step, m, n, j, k, G);
}

/* Householder reduction of the packed symmetric G (m x m, destroyed) from the last row up. The rank-2 update of one
 * step, G −= v qᵀ + q vᵀ, waits for the next and is applied in the pass that multiplies G by the new vector, so each
 * step loads and stores G once; two rows go together, so that v, q, w and p are loaded half as often. `scratch`: 4m. */
INLINE void tridiagonal(vec *G, size_t m, vec *d, vec *e2, vec *scratch) {
    vec *v = scratch, *q = v + m, *w = q + m, *p = w + m;
    for (size_t k = 0; k < m; k++) v[k] = q[k] = (vec){0};
    for (size_t i = m - 1; i >= 1; i--) {
        vec *row = G + at(i, 0), norm2 = {0}, vi = v[i], qi = q[i];
        d[i] = row[i] - 2.0 * vi * qi;
        for (size_t k = 0; k < i; k++) {
            vec x = row[k] - vi * q[k];
            w[k] = x = x - qi * v[k];
            norm2 += x * x;
            p[k] = (vec){0};
        }
        e2[i] = norm2;
        /* w = row − (reflected row), h = ‖w‖²/2; a zero row needs no reflection: 1/h is masked to zero. */
        vec reflected = with_sign(square_root(norm2), -w[i - 1]);
        vec h = norm2 - w[i - 1] * reflected;
        vec inverse = keep_where(h > 1e-290, 1.0 / h);
        w[i - 1] -= reflected;
        for (size_t j = 0; j + 1 < i; j += 2) {
            vec *g = G + at(j, 0), *next = G + at(j + 1, 0), dot = {0}, next_dot = {0};
            vec vj = v[j], qj = q[j], wj = w[j], vn = v[j + 1], qn = q[j + 1], wn = w[j + 1];
            for (size_t k = 0; k < j; k++) {
                vec qk = q[k], vk = v[k], wk = w[k], x = g[k] - vj * qk, y = next[k] - vn * qk, sum = p[k];
                x -= qj * vk;
                y -= qn * vk;
                dot += x * wk;
                next_dot += y * wk;
                sum += x * wj;
                p[k] = sum + y * wn;
                g[k] = x;
                next[k] = y;
            }
            vec between = next[j] - (vn * qj + qn * vj);
            g[j] -= 2.0 * vj * qj;
            next[j] = between;
            next[j + 1] -= 2.0 * vn * qn;
            p[j] += dot + g[j] * wj + between * wn;
            p[j + 1] += next_dot + between * wj + next[j + 1] * wn;
        }
        if (i % 2) { /* the last row alone */
            size_t j = i - 1;
            vec *g = G + at(j, 0), dot = {0}, vj = v[j], qj = q[j], wj = w[j];
            for (size_t k = 0; k < j; k++) {
                vec x = g[k] - vj * q[k];
                g[k] = x = x - qj * v[k];
                dot += x * w[k];
                p[k] += x * wj;
            }
            g[j] -= 2.0 * vj * qj;
            p[j] += dot + g[j] * wj;
        }
        vec projection = {0};
        for (size_t k = 0; k < i; k++) projection += w[k] * p[k];
        vec half = 0.5 * projection * inverse * inverse;
        for (size_t k = 0; k < i; k++) p[k] = p[k] * inverse - half * w[k];
        vec *swap = v;
        v = w, w = swap;
        swap = q, q = p, p = swap;
    }
    d[0] = G[0] - 2.0 * v[0] * q[0];
}

/* Σ_k w_k tr T(T + p_k)⁻¹ for the tridiagonal T, by the pivots 1/r of T + p and their derivatives.
 * The poles rise, so a pivot that is not positive shows at the first: rounding has made T indefinite by more than
 * p_0 can bear. Those lanes are returned as NaN, and the caller computes them another way. */
INLINE vec root_trace(const vec *d, const vec *e2, size_t m, const double *pole, const double *weight, size_t poles) {
    vec total = {0};
    mask sound = (mask){0} - 1;
    for (size_t first = 0; first < poles; first += POLE_UNROLL) {
        vec r[POLE_UNROLL], g[POLE_UNROLL], s[POLE_UNROLL];
        for (int u = 0; u < POLE_UNROLL; u++) {
            vec pivot = d[0] + pole[first + u];
            sound &= pivot > 0.0;
            s[u] = g[u] = r[u] = 1.0 / pivot;
        }
        for (size_t i = 1; i < m; i++)
            for (int u = 0; u < POLE_UNROLL; u++) {
                vec x = e2[i] * r[u];
                vec pivot = d[i] + pole[first + u] - x;
                sound &= pivot > 0.0;
                r[u] = 1.0 / pivot;
                g[u] = r[u] + r[u] * x * g[u];
                s[u] += g[u];
            }
        for (int u = 0; u < POLE_UNROLL; u++) total += weight[first + u] * ((double)m - pole[first + u] * s[u]);
    }
    return (vec)((mask)total | ~sound);
}

/* Make w (n entries) the mirror that turns it into (returned, 0 …): H = 1 − w wᵀ·inverse. A zero vector needs none. */
INLINE wide mirror(wide *w, size_t n, wide *inverse) {
    wide even = {0}, odd = {0}, left;
    for (size_t k = 0; k + 1 < n; k += 2) {
        even += w[k] * w[k];
        odd += w[k + 1] * w[k + 1];
    }
    if (n % 2) even += w[n - 1] * w[n - 1];
    wide norm2 = even + odd;
    const wide_mask bit = (wide_mask){0} + INT32_MIN;
    for (int lane = 0; lane < LANES; lane++) left[lane] = sqrtf(norm2[lane]);
    left = (wide)((wide_mask)left | (~(wide_mask)w[0] & bit)); /* of the other sign, so that nothing cancels */
    wide h = norm2 - w[0] * left;
    *inverse = (wide)((wide_mask)(1.0f / h) & (h > 1e-30f));
    w[0] -= left;
    return left;
}

/* Householder reduction of C (m <= n, `step` vectors a row, destroyed) to the diagonal `alpha` and, right of it, `beta`.
 * The rank-2 update of one step, C −= w yᵀ + x vᵀ, waits for the next and is applied in the pass that finds y = Cᵀw of
 * the new mirror w; a second pass, from the last rows back, so that it meets what is still in the cache, finds x = C v.
 * Four rows go together. `scratch`: 3m + 3n. */
INLINE void bidiagonal(wide *c, size_t step, size_t m, size_t n, wide *alpha, wide *beta, wide *scratch) {
    wide *w = scratch, *next = w + m, *x = next + m, *y = x + m, *v = y + n, *sums = v + n;
    memset(scratch, 0, (3 * m + 3 * n) * sizeof *scratch);
    for (size_t k = 0; k < m; k++) {
        wide inverse, across, yk = y[k], vk = v[k], dot = {0};
        for (size_t i = k; i < m; i++) next[i] = c[i * step + k] - w[i] * yk - x[i] * vk;
        alpha[k] = mirror(next + k, m - k, &inverse);
        for (size_t j = k + 1; j < n; j++) sums[j] = (wide){0};
        size_t i = k;
        for (; i + 4 <= m; i += 4) {
            wide *c0 = c + i * step, *c1 = c0 + step, *c2 = c1 + step, *c3 = c2 + step;
            wide w0 = w[i], w1 = w[i + 1], w2 = w[i + 2], w3 = w[i + 3], x0 = x[i], x1 = x[i + 1], x2 = x[i + 2];
            wide x3 = x[i + 3], next0 = next[i], next1 = next[i + 1], next2 = next[i + 2], next3 = next[i + 3];
            for (size_t j = k + 1; j < n; j++) {
                wide yj = y[j], vj = v[j], a0 = c0[j] - w0 * yj, a1 = c1[j] - w1 * yj, a2 = c2[j] - w2 * yj;
                wide a3 = c3[j] - w3 * yj, sum = sums[j];
                c0[j] = a0 -= x0 * vj;
                sum += a0 * next0;
                c1[j] = a1 -= x1 * vj;
                sum += a1 * next1;
                c2[j] = a2 -= x2 * vj;
                sum += a2 * next2;
                c3[j] = a3 -= x3 * vj;
                sums[j] = sum + a3 * next3;
            }
        }
        for (; i < m; i++)
            for (size_t j = k + 1; j < n; j++) {
                wide a = c[i * step + j] - w[i] * y[j];
                c[i * step + j] = a -= x[i] * v[j];
                sums[j] += a * next[i];
            }
        if (k + 1 == n) {
            beta[k] = (wide){0};
            return;
        }
        for (size_t j = k + 1; j < n; j++) {
            y[j] = sums[j] * inverse;
            v[j] = c[k * step + j] - next[k] * y[j];
        }
        beta[k] = mirror(v + k + 1, n - k - 1, &across);
        for (size_t j = k + 1; j < n; j++) dot += y[j] * v[j];
        for (i = m; i >= k + 5; i -= 4) {
            wide *c0 = c + (i - 4) * step, *c1 = c0 + step, *c2 = c1 + step, *c3 = c2 + step;
            wide even[4] = {{0}}, odd[4] = {{0}};
            size_t j = k + 1;
            for (; j + 1 < n; j += 2) {
                wide vj = v[j], vn = v[j + 1];
                even[0] += c0[j] * vj, even[1] += c1[j] * vj, even[2] += c2[j] * vj, even[3] += c3[j] * vj;
                odd[0] += c0[j + 1] * vn, odd[1] += c1[j + 1] * vn, odd[2] += c2[j + 1] * vn, odd[3] += c3[j + 1] * vn;
            }
            for (; j < n; j++) even[0] += c0[j] * v[j], even[1] += c1[j] * v[j], even[2] += c2[j] * v[j], even[3] += c3[j] * v[j];
            for (size_t p = 0; p < 4; p++) x[i - 4 + p] = (even[p] + odd[p] - next[i - 4 + p] * dot) * across;
        }
        for (; i > k + 1; i--) {
            wide sum = {0};
            for (size_t j = k + 1; j < n; j++) sum += c[(i - 1) * step + j] * v[j];
            x[i - 1] = (sum - next[i - 1] * dot) * across;
        }
        wide *swap = w;
        w = next, next = swap;
    }
}

/* Reflect the columns of C (m x n, `step` vectors a row, `across` between columns) so that row 0 becomes (±‖row‖, 0 …).
 * Returns the squared norm of what stood beside C[0][0]. With `step` and `across` exchanged, the same for column 0. */
INLINE vec clear_row(vec *c, size_t step, size_t across, size_t m, size_t n, vec *w) {
    vec beside = {0};
    for (size_t t = 1; t < n; t++) {
        w[t] = c[t * across];
        beside += w[t] * w[t];
    }
    vec norm2 = beside + c[0] * c[0];
    vec reflected = with_sign(square_root(norm2), -c[0]);
    vec h = norm2 - c[0] * reflected;
    vec inverse = keep_where(h > 1e-290, 1.0 / h);
    w[0] = c[0] - reflected;
    for (size_t j = 0; j < m; j++) {
        vec dot = {0};
        for (size_t t = 0; t < n; t++) dot += c[j * step + t * across] * w[t];
        dot *= inverse;
        for (size_t t = 0; t < n; t++) c[j * step + t * across] -= dot * w[t];
    }
    return beside;
}

/* Split the corner off C (m x n): reflections from both sides in turn, until row and column 0 hold nothing else. Each
 * turn shrinks what is beside the corner by the ratio of the second to the first singular value, so few are needed
 * where the corner is large; lanes in which it is not are returned as NaN. Dropping a row moves the nuclear norm by at
 * most its norm. Returns the singular value that stands in the corner. */
INLINE vec split_corner(vec *c, size_t m, size_t n, vec *w) {
    vec beside = {0};
    for (int turn = 0; turn < SPLITS; turn++) {
        clear_row(c, 1, n, n, m, w);
        beside = clear_row(c, n, 1, m, n, w);
        mask open = beside > 1e-24;
        if (!(open[0] | open[1] | open[2] | open[3])) break;
    }
    vec first = with_sign(c[0], (vec){0});
    return (vec)((mask)first | (beside > 1e-24));
}

/* Trace of the square root of the packed G (m x m, destroyed). `scratch`: 6m. */
INLINE vec trace_of_root(vec *G, size_t m, vec shift, const struct block *b, vec *scratch) {
    vec *d = scratch, *e2 = d + m;
    tridiagonal(G, m, d, e2, e2 + m);
    for (size_t j = 0; j < m; j++) d[j] += shift;
    return root_trace(d, e2, m, b->pole, b->weight, (size_t)b->poles);
}

INLINE vec diagonal_sum(const vec *G, size_t m) {
    vec sum = {0};
    for (size_t j = 0; j < m; j++) sum += G[at(j, j)];
    return sum;
}

/* Ask for C of the next group while this one is being worked on: its rows lie too far apart for the CPU to guess. */
INLINE void prefetch(const struct block *b, int64_t i, int64_t group) {
    if (b->pairs || group >= b->groups) return;
    const char *row = (const char *)(b->products + b->left[i] * b->stride + b->right[group] * LANES);
    size_t bytes = (size_t)(b->right[group + 1] - b->right[group]) * LANES * sizeof(float);
    for (int64_t j = b->left[i]; j < b->left[i + 1]; j++, row += b->stride * (int64_t)sizeof(float))
        for (size_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(row + byte);
}

/* C, turned so that m <= n, and where it lies: entry (j, t) of a lane at c[j * row_step + t * column_step + lane]. */
struct cross {
    const float *c;
    size_t m, n, row_step, column_step;
};

/* LANES pairs of the list side by side, each turned so that m <= n and padded with zeros to the largest. */
INLINE struct cross gather(const struct block *b, int64_t group) {
    const struct pair *pairs = b->pairs + group * LANES;
    size_t m = 0, n = 0;
    for (int lane = 0; lane < LANES; lane++) {
        size_t rows = (size_t)pairs[lane].rows, columns = (size_t)pairs[lane].columns;
        size_t small = rows < columns ? rows : columns, large = rows < columns ? columns : rows;
        m = small > m ? small : m, n = large > n ? large : n;
    }
    for (size_t j = 0; j < m; j++)
        for (int lane = 0; lane < LANES; lane++) {
            struct pair p = pairs[lane];
            int turned = p.columns < p.rows;
            size_t own = (size_t)(turned ? p.columns : p.rows), length = (size_t)(turned ? p.rows : p.columns);
            size_t stride = (size_t)b->stride, down = turned ? 1 : stride, across = turned ? stride : 1, t = 0;
            float *out = b->gathered + j * n * LANES + lane;
            const float *row = b->products + p.first + j * down;
            if (j < own)
                for (; t < length; t++) out[t * LANES] = row[t * across];
            for (; t < n; t++) out[t * LANES] = 0;
        }
    return (struct cross){b->gathered, m, n, n * LANES, LANES};
}

/* The cross product of one left text with one group, or its transpose: C Cᵀ and Cᵀ C have the same nonzero spectrum. */
INLINE struct cross cross_product(const struct block *b, int64_t i, int64_t group) {
    if (b->pairs) return gather(b, group);
    size_t m = (size_t)(b->left[i + 1] - b->left[i]), n = (size_t)(b->right[group + 1] - b->right[group]);
    const float *c = b->products + b->left[i] * b->stride + b->right[group] * LANES;
    if (b->side == RIGHT || (b->side == SMALLER && n < m)) return (struct cross){c, n, m, LANES, (size_t)b->stride};
    return (struct cross){c, m, n, (size_t)b->stride, LANES};
}

typedef void reduction(wide *c, size_t step, size_t m, size_t n, wide *alpha, wide *beta, wide *scratch);

/* Norms and squares of a group by the two diagonals, all lanes at once; `reduce` is `bidiagonal`. */
INLINE void by_diagonals(const struct block *b, struct cross a, reduction *reduce, vec norm[2], vec square[2]) {
    size_t m = a.m, n = a.n, step = n | 1; /* rows a power of 2 apart would fall into the same sets of the cache */
    vec *d = (vec *)b->scratch, *e2 = d + m;
    wide *alpha = (wide *)(e2 + m), *beta = alpha + m, *rows = beta + m;
    /* From the last row and column, which are the largest: what follows is small beside its own rounding only. */
    for (size_t j = 0; j < m; j++)
        for (size_t t = 0; t < n; t++)
            memcpy(rows + (m - 1 - j) * step + n - 1 - t, a.c + j * a.row_step + t * a.column_step, sizeof *rows);
    reduce(rows, step, m, n, alpha, beta, rows + m * step);
    for (int half = 0; half < 2; half++) {
        vec before = {0};
        square[half] = before;
        for (size_t k = 0; k < m; k++) {
            vec on = load((const float *)(alpha + k) + half * HALF), beside = load((const float *)(beta + k) + half * HALF);
            on *= on, beside *= beside;
            d[k] = on + beside;
            e2[k] = on * before;
            square[half] += d[k];
            before = beside;
        }
        norm[half] = root_trace(d, e2, m, b->pole, b->weight, (size_t)b->poles);
    }
}

/* Norms and squares of one half of the lanes of a group, the one that begins at `lane`, by the Gram matrix. */
INLINE void by_gram(const struct block *b, struct cross a, int64_t i, int64_t group, int lane, vec *norm, vec *square) {
    size_t m = a.m, n = a.n;
    const float *c = a.c + lane;
    vec *scratch = (vec *)b->scratch, *G = scratch + 6 * m, *rows = G + at(m, 0), none = {0};
    if (b->left_corners) {
        convert(c, a.row_step, a.column_step, m, n, n, rows);
        rows[0] += b->left_corners[i] * load_double(b->right_corners + group * LANES + lane);
        vec first = split_corner(rows, m, n, rows + m * n);
        memset(G, 0, at(m, 0) * sizeof *G);
        for (size_t t = 1; t < n; t += CHUNK)
            add_gram(rows + n + t, n, m - 1, n - t < CHUNK ? n - t : CHUNK, G);
        *square = first * first + diagonal_sum(G, m - 1);
        *norm = first + (m > 1 ? trace_of_root(G, m - 1, none, b, scratch) : none);
        return;
    }
    memset(G, 0, at(m, 0) * sizeof *G);
    for (size_t t = 0; t < n; t += CHUNK) {
        size_t width = n - t < CHUNK ? n - t : CHUNK;
        convert(c + t * a.column_step, a.row_step, a.column_step, m, width, CHUNK, rows);
        add_gram(rows, CHUNK, m, width, G);
    }
    *square = diagonal_sum(G, m);
    if (!b->ridge) {
        *norm = trace_of_root(G, m, none, b, scratch);
        return;
    }
    /* tr √(s₁²s₂² G + eps·s²·ridge + eps), s that of the side of G, divided by a unit that keeps the sum below 1. */
    vec left = none + b->left_scales[i], right = load_double(b->right_scales + group * LANES + lane);
    vec cross = left * left * right * right, own = b->eps * (b->side == LEFT ? left * left : right * right);
    vec unit = cross + own + b->eps;
    for (size_t k = 0; k < at(m, 0); k++) G[k] *= cross / unit;
    for (size_t j = 0; j < m; j++) {
        vec energy = b->side == LEFT ? none + b->ridge[b->left[i] + (int64_t)j]
                                     : load_double(b->ridge + (b->right[group] + (int64_t)j) * LANES + lane);
        G[at(j, j)] += own / unit * energy;
    }
    *norm = square_root(unit) * trace_of_root(G, m, b->eps / unit, b, scratch);
}

/* Is one of the lanes of a half wanted? */
INLINE int wanted(const struct block *b, int64_t i, int64_t group, int half) {
    if (!b->wanted) return 1;
    const unsigned char *lane = b->wanted + (i * b->groups + group) * LANES + half * HALF;
    return lane[0] | lane[1] | lane[2] | lane[3];
}

/* One left text with one group. Squaring costs as much as both diagonals where n is about 1.5 m. */
INLINE void one_with_group(const struct block *b, int64_t i, int64_t group, reduction *reduce, vec *norm, vec *square) {
    struct cross a = cross_product(b, i, group);
    norm[0] = norm[1] = square[0] = square[1] = (vec){0};
    if (a.m == 0 || (a.n == 0 && !b->ridge) || !(wanted(b, i, group, 0) | wanted(b, i, group, 1))) return;
    if (!b->left_corners && !b->ridge && 2 * a.n <= 3 * a.m)
        by_diagonals(b, a, reduce, norm, square);
    else
        for (int half = 0; half < 2; half++)
            if (wanted(b, i, group, half)) by_gram(b, a, i, group, half * HALF, norm + half, square + half);
}

INLINE void every_pair(const struct block *b, reduction *reduce) {
    for (int64_t i = 0; i < b->lefts; i++)
        for (int64_t group = 0; group < b->groups; group++) {
            vec norm[2], square[2];
            prefetch(b, i, group + 1);
            one_with_group(b, i, group, reduce, norm, square);
            int64_t out = (i * b->groups + group) * LANES;
            memcpy(b->norms + out, norm, sizeof norm);
            memcpy(b->squares + out, square, sizeof square);
        }
}

/* A copy for some CPUs. `bidiagonal` is a function of its own in each: all of it needs all registers. */
#define COPY(name, attributes)                                                                                         \
    attributes __attribute__((noinline)) static void bidiagonal_##name(wide *c, size_t step, size_t m, size_t n,       \
                                                                       wide *alpha, wide *beta, wide *scratch) {       \
        bidiagonal(c, step, m, n, alpha, beta, scratch);                                                               \
    }                                                                                                                  \
    attributes void poolscope_norms_##name(const struct block *b) { every_pair(b, bidiagonal_##name); }

COPY(default, )
#if defined(__x86_64__)
COPY(v3, __attribute__((target("avx2,fma"))))
COPY(v4, __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512cd,avx2,fma"))))
#endif

/* For the caller to see that this library is the one that it was written for. */
int64_t poolscope_lanes(void) { return LANES; }
int64_t poolscope_block_bytes(void) { return (int64_t)sizeof(struct block); }

/* The highest copy that this CPU can run: 4, 3, or 0 for the default one. */
int64_t poolscope_level(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    int v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512cd");
    return v4 ? 4 : v3 ? 3 : 0;
#else
    return 0;
#endif
}
