/* The blocks of the cache as a picture on stderr that a terminal redraws in place.
 *
 *     [221111....oo..]  5 running 3 waiting | live 4 shared 2 idle 2 free 6 | hits 64 of 120 | ...
 */
#ifndef KVAD_CLI_SHOW_CACHE_H
#define KVAD_CLI_SHOW_CACHE_H

#include "kvad/kvad.h"

/* Zero is a view that has drawn nothing yet. */
struct cli_cache_view {
    char last[256]; /* the picture on the screen */
    bool is_drawn;
};

/** Draw the engine's cache if it looks different from the last time; the first time after lines
 * that say what every sign means. */
void cli_cache_view_draw(struct cli_cache_view *view, const struct kvad_engine *engine);
/** Draw once more, and end the line. */
void cli_cache_view_end(struct cli_cache_view *view, const struct kvad_engine *engine);

#endif
