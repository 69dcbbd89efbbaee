/* The kernel as a program, for other CPUs and for sanitizers: stored inputs in, the largest differences out.
 *
 *     kernel_check FILE [FILE ...]
 *
 * A file is written by tools/kernel_inputs.py (in the byte order of the machine): int64 rows, stride, lefts, groups,
 * poles, corners (0 or 1), side, scratch doubles, gathered floats (0: no list of pairs); eps; then the arrays of `struct
 * block` in their order, the norms and squares that are expected, and the pairs. Exit 1 where one differs by more than
 * 1e-7 of the largest, which leaves room for the error of the rational function.
 */
#include "../src/poolscope/numbers/bures/kernel.c"

#include <stdio.h>
#include <stdlib.h>

#define TOLERANCE 1e-7

static void *take(FILE *file, size_t count, size_t size) {
    void *memory = malloc(count * size + 1); /* of exactly this size, so that a sanitizer sees one step beyond */
    if (!memory || fread(memory, size, count, file) != count) {
        fprintf(stderr, "the file ends early\n");
        exit(2);
    }
    return memory;
}

static double furthest(const double *values, const double *expected, size_t count) {
    double largest = 0;
    for (size_t k = 0; k < count; k++) {
        double difference = fabs(values[k] - expected[k]);
        if (isnan(values[k]) != isnan(expected[k])) difference = INFINITY;
        if (difference > largest) largest = difference;
    }
    return largest;
}

static double magnitude(const double *values, size_t count) {
    double largest = 0;
    for (size_t k = 0; k < count; k++)
        if (values[k] > largest) largest = values[k];
    return largest;
}

static int check(const char *name) {
    FILE *file = fopen(name, "rb");
    if (!file) {
        perror(name);
        return 2;
    }
    int64_t *head = take(file, 9, sizeof *head);
    size_t rows = (size_t)head[0], lefts = (size_t)head[2], lanes = (size_t)head[3] * LANES, poles = (size_t)head[4];
    struct block b = {.stride = head[1], .lefts = head[2], .groups = head[3], .poles = head[4], .side = head[6]};
    double *eps = take(file, 1, sizeof *eps);
    float *products = take(file, rows * (size_t)b.stride, sizeof *products);
    int64_t *left = take(file, lefts + 1, sizeof *left), *right = take(file, lanes / LANES + 1, sizeof *right);
    double *pole = take(file, poles, sizeof *pole), *weight = take(file, poles, sizeof *weight);
    double *left_values = take(file, lefts, sizeof *left_values), *right_values = take(file, lanes, sizeof *right_values);
    size_t energies = b.side == SMALLER ? 0 : b.side == LEFT ? rows : (size_t)right[b.groups] * LANES;
    double *ridge = take(file, energies, sizeof *ridge);
    double *norms = take(file, lefts * lanes, sizeof *norms), *squares = take(file, lefts * lanes, sizeof *squares);
    struct pair *pairs = take(file, head[8] ? lanes : 0, sizeof *pairs);
    double *scratch = aligned_alloc(sizeof(vec), (size_t)head[7] * sizeof(double));
    float *gathered = aligned_alloc(sizeof(wide), (size_t)head[8] * sizeof(float) + sizeof(wide));
    b.products = products, b.left = left, b.right = right, b.pole = pole, b.weight = weight, b.eps = *eps;
    if (head[5]) b.left_corners = left_values, b.right_corners = right_values;
    if (b.side != SMALLER) b.left_scales = left_values, b.right_scales = right_values, b.ridge = ridge;
    b.scratch = scratch, b.pairs = head[8] ? pairs : NULL, b.gathered = gathered;
    b.norms = malloc(lefts * lanes * sizeof(double)), b.squares = malloc(lefts * lanes * sizeof(double));
    int failures = 0;
    void (*copies[])(const struct block *) = {
        poolscope_norms_default,
#if defined(__x86_64__)
        poolscope_norms_v3,
        poolscope_norms_v4,
#endif
    };
    unsigned char *some = malloc(lefts * lanes + 1);
    for (size_t k = 0; k < lefts * lanes; k++) some[k] = k % 7 == 0; /* of some groups one half, of some neither */
    int64_t count = poolscope_level() ? poolscope_level() - 1 : 1;
    for (int64_t turn = 0; turn < 2 * count; turn++) {
        int64_t copy = turn / 2;
        b.wanted = turn % 2 ? some : NULL;
        copies[copy](&b);
        for (size_t k = 0; k < lefts * lanes; k++) /* what was not wanted may be anything */
            if (b.wanted && !some[k]) b.norms[k] = norms[k], b.squares[k] = squares[k];
        double norm = furthest(b.norms, norms, lefts * lanes), square = furthest(b.squares, squares, lefts * lanes);
        int failed = !(norm <= TOLERANCE * (1 + magnitude(norms, lefts * lanes))) ||
                     !(square <= TOLERANCE * (1 + magnitude(squares, lefts * lanes)));
        printf("%s, copy %d%s: norms within %.1e, squares within %.1e%s\n", name, (int)copy,
               b.wanted ? ", some pairs" : "", norm, square, failed ? ": FAILED" : "");
        failures += failed;
    }
    void *owned[] = {head,  eps,          products,     left,  right, pole,    weight,
                     norms, left_values,  right_values, ridge, squares, scratch, b.norms, b.squares, some,
                     pairs, gathered};
    for (size_t k = 0; k < sizeof owned / sizeof *owned; k++) free(owned[k]);
    fclose(file);
    return failures > 0;
}

int main(int count, char **names) {
    int worst = count < 2 ? 2 : 0;
    for (int k = 1; k < count; k++) {
        int status = check(names[k]);
        if (status > worst) worst = status;
    }
    return worst;
}
