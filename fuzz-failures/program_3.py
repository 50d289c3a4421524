"""Written by tests/fuzz/number_writer.py, seed 1."""

from typing import NamedTuple 

import numpy as np 
from gymnasium .spaces import Box ,Discrete ,MultiDiscrete 

import operant 
from operant .lang import (
abs ,atan ,atan2 ,ceil ,clip ,cos ,exp ,floor ,log ,logical_not ,maximum ,minimum ,normal ,pi ,
randint ,sign ,sin ,sqrt ,tan ,tanh ,to_float ,to_int ,uniform ,where ,
)


def shift_left (x ):
    return where (abs (x )<1e6 ,x ,0.5 )


class Program (operant .Env ):
    random_numbers =9 
    observation_space =Box (-np .inf ,np .inf ,(4 ,),np .float32 )
    action_space =Discrete (5 )
    max_episode_steps =9 

    class Params (NamedTuple ):
        clock :float =41.0 
        NULL :float =100.0 
        count :int =3 
        hard :bool =True 

    class State (NamedTuple ):
        sin :float 
        double :int 
        exp_exact :int 

    def reset (random ,params ):
        return Program .State ((to_float (to_int (floor (random [6 ]*64.0 )/64.0 ))),(to_int (floor (random [0 ]*64.0 )*41.0 )^params .count ),maximum (2147483647 ,to_int (floor (random [5 ]*64.0 )*41.0 )))

    def step (state ,action ,random ,params ):
        BLOCK =logical_not (logical_not ((floor (random [7 ]*64.0 )<0.0 )))
        PASS =(((to_float (state .exp_exact %1000 ))*2.0 )%2.0 )
        f32 =(((to_float (state .double %41 ))*((state .sin *94.0 )%94.0 )))
        auto =((action //state .double )|(state .exp_exact ^1 ))
        return Program .State ((minimum ((minimum (((floor (random [4 ]*64.0 )//55.0 )),(clip (state .sin ,-2.0 ,2.0 )))),(ceil ((clip (PASS ,-83.0 ,83.0 ))/3.0 )))),randint (random [4 ],2 ),to_int (((~BLOCK )^logical_not (BLOCK )))),((((((PASS +state .sin ))%1000.0 )*(where ((f32 <params .NULL ),floor (random [5 ]*64.0 ),PASS ))))%82.0 ),(random [8 ]<0.1 )&(~BLOCK )

    def observe (state ,params ):
        return ((((where ((state .sin <1.0 ),state .sin ,2.0 ))*1.0 )%1.0 ),(((((state .sin //5.0 ))%97.0 )*64.0 )%64.0 ),(where (logical_not ((state .sin <2.0 )),(((state .sin //7.0 ))%61.0 ),(clip (state .sin ,-64.0 ,64.0 )))),(sign ((minimum (state .sin ,0.0 )))),)
