/* --help and --version: plain text for a terminal of 80 columns. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/pages.h"

enum { WIDTH = 79, OPTION_COLUMN = 27 };

/* Prints words from column `column` on, wrapped to lines that begin at `indent`. Newlines are kept;
 * a newline at the end is added. */
static void print_wrapped(const char *text, size_t column, size_t indent) {
    while (*text) {
        size_t space = strspn(text, " "), word = strcspn(text + space, " \n");
        if (text[0] == '\n') {
            putchar('\n');
            column = 0;
            text++;
            continue;
        }
        if (column > indent && column + space + word > WIDTH) {
            putchar('\n');
            column = 0;
        }
        if (column < indent) {
            printf("%*s", (int)(indent - column), "");
            column = indent;
        } else if (column > indent) {
            column += (size_t)printf("%.*s", (int)space, text);
        }
        column += (size_t)printf("%.*s", (int)word, text + space);
        text += space + word;
    }
    putchar('\n');
}

static void print_examples(const struct cli_example *examples) {
    puts("\nExamples:");
    for (; examples->command; examples++) {
        printf("  %s\n", examples->command);
        print_wrapped(examples->text, 0, 6);
    }
}

static void print_entry(char letter, const char *name, const char *value, const char *help) {
    char left[128];
    snprintf(left, sizeof left, "  %c%c%c --%s%s%s", letter ? '-' : ' ', letter ? letter : ' ',
             letter ? ',' : ' ', name, *value ? " " : "", value);
    size_t column = (size_t)printf("%s", left);
    if (column + 2 > OPTION_COLUMN) {
        putchar('\n');
        column = 0;
    }
    print_wrapped(help, column, OPTION_COLUMN);
}

static void print_group(const struct cli_group *group) {
    printf("\n%s:\n", group->title);
    for (size_t i = 0; i < group->n_options; i++) {
        const struct cli_option *option = &group->options[i];
        char value[CLI_VALUE_SIZE], help[CLI_HELP_SIZE];
        cli_option_value_text(option, value);
        cli_option_help_text(option, help);
        print_entry(option->letter, option->name, value, help);
    }
}

static void print_exit_codes(void) {
    puts("\nExit codes:");
    for (const struct cli_exit_text *e = cli_exit_texts; e->text; e++)
        printf("  %3d  %s\n", e->code, e->text);
}

void cli_print_help(const struct cli_command *command) {
    printf("kvad %s: %s\n\nUsage: ", command->name, command->summary);
    size_t column = strlen("Usage: ");
    column += (size_t)printf("kvad %s ", command->name);
    print_wrapped(command->synopsis, column, column);
    print_examples(command->examples);
    putchar('\n');
    print_wrapped(command->description, 0, 0);
    putchar('\n');
    print_wrapped(cli_model_text, 0, 0);
    for (const struct cli_group *const *group = command->groups; *group; group++)
        print_group(*group);
    puts("\nVariables:");
    print_wrapped(cli_environment_text, 0, 2);
    print_exit_codes();
}

static void print_commands(void) {
    puts("\nCommands:");
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        printf("  %-10s %s\n", (*c)->name, (*c)->summary);
}

void cli_print_main_help(bool is_short) {
    puts("kvad: GPT inference whose heart is the KV cache\n\n"
         "Usage: kvad COMMAND MODEL [options]");
    print_examples(cli_main_examples);
    print_commands();
    if (is_short) {
        puts("\n'kvad --help' says more, 'kvad COMMAND --help' all about a command.");
        return;
    }
    puts("\nOptions:");
    for (const struct cli_main_option *o = cli_main_options; o->name; o++)
        print_entry(o->letter, o->name, o->value ? o->value : "", o->help);
    putchar('\n');
    print_wrapped(cli_about, 0, 0);
    putchar('\n');
    print_wrapped(cli_model_text, 0, 0);
    puts("\nVariables:");
    print_wrapped(cli_environment_text, 0, 2);
    print_exit_codes();
}

void cli_print_version(void) {
    printf("kvad %s\nkernels on this CPU:", kvad_version());
    for (unsigned i = 0; kvad_cpu_supported(i); i++)
        printf(" %s", kvad_cpu_supported(i));
#if defined(__clang__)
    printf("\nbuilt with clang %s", __clang_version__);
#elif defined(__GNUC__)
    printf("\nbuilt with gcc %s", __VERSION__);
#endif
    puts("\nMIT licence; there is no warranty");
}
