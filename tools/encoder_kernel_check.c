/* The kernel of encoders as a program, for sanitizers: random inputs, held against plain loops in double precision.
 *
 *     encoder_kernel_check
 *
 * Every array has exactly the size that packed.py gives it, so that a sanitizer sees one step beyond. Exit 1 where a
 * result differs; a CPU without AVX2 has nothing to check and exits 0.
 */
#include "../src/poolscope/encoders/kernel.c"

#include <stdio.h>
#include <stdlib.h>

#if defined(__x86_64__)

#define TOLERANCE 2e-5

static float *drawn(int64_t count) {
    float *memory = malloc((size_t)count * sizeof(float));
    if (!memory) exit(2);
    for (int64_t k = 0; k < count; k++) memory[k] = (float)rand() / (float)RAND_MAX * 2 - 1;
    return memory;
}

static double check_product(int64_t count, int64_t depth, int64_t columns) {
    float *rows = drawn(count * depth), *panels = drawn(depth * columns), *bias = drawn(columns);
    float *out = drawn(count * columns);
    double largest = 0;
    struct product call = {rows, panels, bias, count, depth, columns, out};
    poolscope_product(&call);
    for (int64_t r = 0; r < count; r++)
        for (int64_t c = 0; c < columns; c++) {
            double sum = bias[c];
            for (int64_t t = 0; t < depth; t++)
                sum += (double)rows[r * depth + t] * panels[(c / PANEL * depth + t) * PANEL + c % PANEL];
            largest = fmax(largest, fabs(sum - out[r * columns + c]));
        }
    free(rows), free(panels), free(bias), free(out);
    return largest / sqrt((double)depth);
}

static double check_attention(const int64_t *lengths, int64_t texts, int64_t heads, int64_t width) {
    int64_t tokens = 0, longest = 0, step = heads * width;
    for (int64_t text = 0; text < texts; text++) {
        tokens += lengths[text];
        longest = lengths[text] > longest ? lengths[text] : longest;
    }
    int64_t padded = (longest + PANEL - 1) / PANEL * PANEL;
    float *of[3], *scratch = drawn(padded * (2 * width + QUERIES)), *out = drawn(tokens * step);
    double *weights = malloc((size_t)longest * sizeof(double)), largest = 0;
    struct attention call = {.lengths = lengths, .texts = texts, .heads = heads, .width = width, .scale = 0.3};
    for (int i = 0; i < 3; i++) {
        call.of[i] = of[i] = drawn(tokens * step);
        call.token_step[i] = step, call.head_step[i] = width;
    }
    call.scratch = scratch, call.out = out;
    poolscope_attention(&call);
    for (int64_t text = 0, first = 0; text < texts; first += lengths[text++])
        for (int64_t query = 0; query < lengths[text]; query++)
            for (int64_t head = 0; head < heads; head++) {
                const float *q = of[0] + (first + query) * step + head * width;
                double total = 0;
                for (int64_t t = 0; t < lengths[text]; t++) {
                    double score = 0;
                    for (int64_t d = 0; d < width; d++)
                        score += (double)q[d] * of[1][(first + t) * step + head * width + d];
                    total += weights[t] = exp(0.3 * score);
                }
                for (int64_t d = 0; d < width; d++) {
                    double sum = 0;
                    for (int64_t t = 0; t < lengths[text]; t++)
                        sum += weights[t] * of[2][(first + t) * step + head * width + d];
                    double difference = sum / total - out[(first + query) * step + head * width + d];
                    largest = fmax(largest, fabs(difference));
                }
            }
    for (int i = 0; i < 3; i++) free(of[i]);
    free(scratch), free(out), free(weights);
    return largest;
}

int main(void) {
    static const int64_t counts[] = {1, 5, 6, 7, 301}, depths[] = {1, 7, 384, 385, 1000}, widths[] = {16, 32, 64};
    static const int64_t lengths[] = {1, 7, 16, 17, 24, 25, 130, 401, 2};
    double worst = 0;
    if (!poolscope_ready()) return printf("no AVX2 here: nothing to check\n"), 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t j = 0; j < sizeof depths / sizeof *depths; j++)
            for (int64_t columns = PANEL; columns <= 3 * PANEL; columns += PANEL)
                worst = fmax(worst, check_product(counts[i], depths[j], columns));
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        for (int64_t heads = 1; heads <= 3; heads++)
            worst = fmax(worst, check_attention(lengths, sizeof lengths / sizeof *lengths, heads, widths[i]));
    printf("largest difference %.1e (allowed %.1e)\n", worst, TOLERANCE);
    return !(worst <= TOLERANCE);
}

#else

int main(void) { return printf("no AVX2 here: nothing to check\n"), 0; }

#endif
