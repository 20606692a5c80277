/* --completion: scripts for bash, zsh and fish from the option tables. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/pages.h"

/* Calls `print` for every option of a command. */
static void each_option(const struct cli_command *command,
                        void (*print)(const struct cli_option *option)) {
    const struct cli_option *option;
    for (size_t i = 0; (option = cli_command_option(command, i)); i++)
        print(option);
}

static void print_choices(const struct cli_option *option, const char *separator) {
    for (const struct cli_choice *c = option->choices; c->name; c++)
        printf("%s%s", c == option->choices ? "" : separator, c->name);
}

/* ------------------------------------------------------------------ bash */

static void bash_name(const struct cli_option *option) {
    printf(" --%s", option->name);
    if (option->letter) printf(" -%c", option->letter);
}

/* One arm of the case on the word before: what may follow it. */
static void bash_value(const struct cli_option *option) {
    if (!cli_option_takes_value(option)) return;
    printf("        --%s", option->name);
    if (option->letter) printf("|-%c", option->letter);
    if (option->kind == CLI_CHOICE) {
        fputs(") words=\"", stdout);
        print_choices(option, " ");
        puts("\" ;;");
    } else {
        puts(option->kind == CLI_FILE ? ") files=1 ;;" : ") return ;;");
    }
}

static void print_bash(void) {
    puts("# bash completion for kvad: source <(kvad --completion bash)\n"
         "_kvad() {\n"
         "    local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
         "    local command=\"${COMP_WORDS[1]}\" words= files=\n"
         "    # bash splits --name=value into three words\n"
         "    if [[ $cur == = ]]; then cur=\n"
         "    elif [[ $prev == = ]]; then prev=\"${COMP_WORDS[COMP_CWORD-2]}\"; fi\n"
         "    COMPREPLY=()\n"
         "    if ((COMP_CWORD == 1)); then");
    fputs("        words=\"", stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        printf("%s ", (*c)->name);
    for (const struct cli_main_option *o = cli_main_options; o->name; o++)
        printf("--%s%s", o->name, o[1].name ? " " : "\"\n");
    puts("        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "        return\n"
         "    fi\n"
         "    case $command in");
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        printf("    %s)\n        words=\"", (*c)->name);
        each_option(*c, bash_name);
        puts("\"\n        case $prev in");
        each_option(*c, bash_value);
        puts("        *) [[ $cur == -* ]] || files=1 ;;\n        esac\n        ;;");
    }
    fputs("    --man) words=\"", stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        printf(" %s", (*c)->name);
    puts("\" ;;\n"
         "    --completion) words=\"bash zsh fish\" ;;\n"
         "    *) files=1 ;;\n"
         "    esac\n"
         "    if [[ $files ]]; then compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\"))\n"
         "    else COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); fi\n"
         "}\n"
         "complete -F _kvad kvad");
}

/* ------------------------------------------------------------------ zsh */

/* Text inside '...' of an _arguments specification. */
static void zsh_text(const char *text) {
    for (; *text; text++) {
        if (strchr("[]:\\", *text)) putchar('\\');
        if (*text == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*text);
    }
}

static bool is_repeatable(const struct cli_option *option) {
    return option->kind == CLI_TEXTS || option->kind == CLI_IDS || option->kind == CLI_BIASES ||
           option->kind == CLI_COUNT;
}

static void zsh_spec(const struct cli_option *option, const char *dashes, const char *name,
                     size_t name_size) {
    bool takes_value = cli_option_takes_value(option);
    printf("            '%s%s%.*s%s[", is_repeatable(option) ? "*" : "", dashes, (int)name_size,
           name,
           !takes_value ? ""
           : dashes[1]  ? "="
                        : "+");
    zsh_text(option->help);
    putchar(']');
    if (takes_value) {
        fputs(":value:", stdout);
        if (option->kind == CLI_CHOICE) {
            putchar('(');
            print_choices(option, " ");
            putchar(')');
        } else if (option->kind == CLI_FILE) {
            fputs("_files", stdout);
        }
    }
    puts("' \\");
}

static void zsh_option(const struct cli_option *option) {
    if (option->letter) zsh_spec(option, "-", &option->letter, 1);
    zsh_spec(option, "--", option->name, strlen(option->name));
}

static void print_zsh(void) {
    puts("#compdef kvad\n"
         "# zsh completion for kvad: kvad --completion zsh > a folder of $fpath/_kvad\n"
         "_kvad() {\n"
         "    if ((CURRENT == 2)); then\n"
         "        local -a commands=(");
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        printf("            '%s:", (*c)->name);
        zsh_text((*c)->summary);
        puts("'");
    }
    for (const struct cli_main_option *o = cli_main_options; o->name; o++) {
        printf("            '--%s:", o->name);
        zsh_text(o->help);
        puts("'");
    }
    puts("        )\n"
         "        _describe command commands\n"
         "        return\n"
         "    fi\n"
         "    local command=$words[2]\n"
         "    shift words; ((CURRENT--))\n"
         "    case $command in");
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        printf("    %s)\n        _arguments -s \\\n", (*c)->name);
        each_option(*c, zsh_option);
        puts("            '*:file:_files'\n        ;;");
    }
    puts("    --completion) _values shell bash zsh fish ;;");
    fputs("    --man) _values command", stdout);
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        printf(" %s", (*c)->name);
    puts(" ;;\n    esac\n}\n"
         "if [[ $funcstack[1] == _kvad ]]; then _kvad \"$@\"; else compdef _kvad kvad; fi");
}

/* ------------------------------------------------------------------ fish */

static void fish_text(const char *text) {
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') putchar('\\');
        putchar(*text);
    }
    putchar('\'');
}

static void fish_option(const struct cli_option *option) {
    printf(" -l %s", option->name);
    if (option->letter) printf(" -s %c", option->letter);
    if (cli_option_takes_value(option)) fputs(option->kind == CLI_FILE ? " -r -F" : " -x", stdout);
    if (option->kind == CLI_CHOICE) {
        fputs(" -a '", stdout);
        print_choices(option, " ");
        putchar('\'');
    }
    fputs(" -d ", stdout);
    fish_text(option->help);
    putchar('\n');
}

static void print_fish(void) {
    puts("# fish completion for kvad: kvad --completion fish | source");
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        printf("complete -c kvad -n __fish_use_subcommand -f -a %s -d ", (*c)->name);
        fish_text((*c)->summary);
        putchar('\n');
    }
    for (const struct cli_main_option *o = cli_main_options; o->name; o++) {
        printf("complete -c kvad -n __fish_use_subcommand -f -l %s%s -d ", o->name,
               strcmp(o->name, "completion") == 0 ? " -x -a 'bash zsh fish'" : "");
        fish_text(o->help);
        putchar('\n');
    }
    for (const struct cli_command *const *c = cli_commands; *c; c++) {
        const struct cli_option *option;
        for (size_t i = 0; (option = cli_command_option(*c, i)); i++) {
            printf("complete -c kvad -n '__fish_seen_subcommand_from %s'", (*c)->name);
            fish_option(option);
        }
    }
}

bool cli_print_completion(const char *shell) {
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < CLI_COUNT_OF(shells); i++) {
        if (strcmp(shells[i].name, shell) != 0) continue;
        shells[i].print();
        return true;
    }
    return false;
}
