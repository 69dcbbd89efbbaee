/* Nuclear norms of many small cross products at once: the inner loop of all-pairs Bures-Wasserstein.
 *
 * Input is a block of C = A Bᵀ. A holds the rows of the left texts one text after the other. B holds the right
 * texts in groups of LANES, interleaved: row (t, lane) of a group is row t of its lane-th text, zero where that text
 * has no row t. So C[r][t][lane] arrives from the matrix product with the lanes side by side, and every step below
 * treats LANES pairs with one vector instruction, with no shuffle and no branch.
 *
 * For one left text (m rows) against one group (n rows, padded):
 *   1. gram:        G = C Cᵀ, on the smaller of the two sides, in double precision;
 *   2. tridiagonal: Householder reduction of G, keeping only the diagonal d and the squared off-diagonal e2;
 *   3. root_trace:  ‖C‖_* = tr √G by the rational function √x ≈ Σ_k w_k x/(x + p_k), whose value on a tridiagonal
 *                   matrix is a short recurrence: no eigenvalues, no iteration, no convergence test.
 * Padding rows are zero and add zero eigenvalues, which add nothing. All singular values of C must be at most 1
 * (the caller scales the factors); poles and weights are made for that range.
 *
 * Two variants. Where all texts share one large direction, the caller removes it from the factors, and gives it as a
 * `corner`: a large number that belongs to C[0][0]. It is split off before the Gram matrix could drown the rest in its
 * square. And with a `ridge`, the trace is that of the published code, which adds eps before each square root.
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
enum { LANES = 4, CHUNK = 64, TILE_ROWS = 4, TILE_COLUMNS = 3, POLE_UNROLL = 4, SPLITS = 8 };
enum side { SMALLER, LEFT, RIGHT };

typedef double vec __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t mask __attribute__((vector_size(LANES * sizeof(int64_t))));

#define INLINE static inline __attribute__((always_inline))

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
};

INLINE vec load(const float *address) {
    vec wide = {0};
    for (int lane = 0; lane < LANES; lane++) wide[lane] = address[lane];
    return wide;
}

INLINE vec load_double(const double *address) {
    vec four;
    memcpy(&four, address, sizeof four);
    return four;
}

INLINE vec keep_where(mask condition, vec value) { return (vec)(condition & (mask)value); }

INLINE vec square_root(vec x) {
    for (int lane = 0; lane < LANES; lane++) x[lane] = sqrt(x[lane]);
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
    if (group >= b->groups) return;
    const char *row = (const char *)(b->products + b->left[i] * b->stride + b->right[group] * LANES);
    size_t bytes = (size_t)(b->right[group + 1] - b->right[group]) * LANES * sizeof(float);
    for (int64_t j = b->left[i]; j < b->left[i + 1]; j++, row += b->stride * (int64_t)sizeof(float))
        for (size_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(row + byte);
}

/* One left text with one group: `norm` and `square`. m and n are the sides of C after the choice of the side of G. */
INLINE void one_with_group(const struct block *b, int64_t i, int64_t group, vec *norm, vec *square) {
    size_t m = (size_t)(b->left[i + 1] - b->left[i]), n = (size_t)(b->right[group + 1] - b->right[group]);
    const float *c = b->products + b->left[i] * b->stride + b->right[group] * LANES;
    size_t row_step = (size_t)b->stride, column_step = LANES;
    if (b->side == RIGHT || (b->side == SMALLER && n < m)) { /* C Cᵀ and Cᵀ C have the same nonzero spectrum */
        size_t swap = m;
        m = n, n = swap, row_step = LANES, column_step = (size_t)b->stride;
    }
    *norm = *square = (vec){0};
    if (m == 0) return;
    vec *scratch = (vec *)b->scratch, *G = scratch + 6 * m, *rows = G + at(m, 0), none = {0};
    if (b->left_corners) {
        if (n == 0) return;
        convert(c, row_step, column_step, m, n, n, rows);
        rows[0] += b->left_corners[i] * load_double(b->right_corners + group * LANES);
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
        convert(c + t * column_step, row_step, column_step, m, width, CHUNK, rows);
        add_gram(rows, CHUNK, m, width, G);
    }
    *square = diagonal_sum(G, m);
    if (!b->ridge) {
        *norm = trace_of_root(G, m, none, b, scratch);
        return;
    }
    /* tr √(s₁²s₂² G + eps·s²·ridge + eps), s that of the side of G, divided by a unit that keeps the sum below 1. */
    vec left = none + b->left_scales[i], right = load_double(b->right_scales + group * LANES);
    vec cross = left * left * right * right, own = b->eps * (b->side == LEFT ? left * left : right * right);
    vec unit = cross + own + b->eps;
    for (size_t k = 0; k < at(m, 0); k++) G[k] *= cross / unit;
    for (size_t j = 0; j < m; j++) {
        vec energy = b->side == LEFT ? none + b->ridge[b->left[i] + (int64_t)j]
                                     : load_double(b->ridge + (b->right[group] + (int64_t)j) * LANES);
        G[at(j, j)] += own / unit * energy;
    }
    *norm = square_root(unit) * trace_of_root(G, m, b->eps / unit, b, scratch);
}

INLINE void every_pair(const struct block *b) {
    for (int64_t i = 0; i < b->lefts; i++)
        for (int64_t group = 0; group < b->groups; group++) {
            vec norm, square;
            prefetch(b, i, group + 1);
            one_with_group(b, i, group, &norm, &square);
            int64_t out = (i * b->groups + group) * LANES;
            memcpy(b->norms + out, &norm, sizeof norm);
            memcpy(b->squares + out, &square, sizeof square);
        }
}

void poolscope_norms_default(const struct block *b) { every_pair(b); }
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void poolscope_norms_v3(const struct block *b) { every_pair(b); }
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512cd,avx2,fma"))) void
poolscope_norms_v4(const struct block *b) {
    every_pair(b);
}
#endif

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
